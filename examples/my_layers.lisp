; Layers of your own: Llama's weights, but each position looks back over a window only and finds clearer what is near
; ("Train Short, Test Long", Press et al. 2022, in place of rotary positions), and the gate is a squared ReLU.
; lispgpt checkpoint make tiny --preset llama-tiny --format huggingface
; lispgpt run examples/my_layers.lisp --checkpoint tiny --prompt "Once upon a time"
(require nn)

(config vocab 512  context 128  layers 2  heads 4  kv-heads 2  width 64  hidden 172  head-width 16
        epsilon 1e-5  window 32  weight-type bf16
        cache-type (usual-cache-type weight-type))

(weights
  (wte [vocab width] weight-type)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* (+ heads (* 2 kv-heads)) head-width) width] weight-type)
    (proj-w [width (* heads head-width)] weight-type)
    (norm2-w [width] {:init 1})
    (gate-w [hidden width] weight-type)
    (up-w [hidden width] weight-type)
    (down-w [width hidden] weight-type))
  (normf-w [width] {:init 1})
  (head-w [vocab width] weight-type))

(state (kv [layers batch 2 kv-heads context head-width] cache-type))

; The score of what lies `distance` back falls with it, for head h by 2^(-8 (h + 1) / heads) a position.
(defn clearer-near [score head t position]
  (let [distance (- position t)
        slope (exp (* (+ 1.0 (cast (cast head i32) f32)) (/ (* -8.0 (log 2.0)) heads)))]
    (select (< distance window) (- score (* slope (cast distance f32))) -inf)))

(defn squared-relu [x] (square (relu x)))

(defn attend-block [x l]
  (let [qkv (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l))
        [q k v] (split-heads qkv head-width heads kv-heads)]
    (linear (attend q k v (kv l) clearer-near) (proj-w l))))

(defn feed-forward [x l]
  (let [x (rms-norm x (norm2-w l) epsilon)]
    (linear (* (squared-relu (linear x (gate-w l))) (linear x (up-w l))) (down-w l))))

(defn layer [x l]
  (let [x (+ x (attend-block x l))]
    (+ x (feed-forward x l))))

(entry logits [tokens positions]
  (let [x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) head-w)))

(generate logits {:max-new-tokens 64 :temperature 0.8})
