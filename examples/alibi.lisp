; A language model without positions: what is far counts less, by a slope that each head has of its own.
; "Train Short, Test Long: Attention with Linear Biases", Press et al. 2022
; lispgpt run examples/alibi.lisp --checkpoint W.safetensors --prompt-tokens 1,2,3
(require nn)

(config vocab 512  context 128  layers 2  heads 4  width 64  hidden 256
        cache-type (usual-cache-type bf16))

(weights
  (wte [vocab width] bf16)
  (per layers
    (norm1-w [width]) (norm1-b [width])
    (qkv-w [(* 3 width) width] bf16) (qkv-b [(* 3 width)])
    (proj-w [width width] bf16) (proj-b [width])
    (norm2-w [width]) (norm2-b [width])
    (in-w [hidden width] bf16) (in-b [hidden])
    (out-w [width hidden] bf16) (out-b [width]))
  (normf-w [width]) (normf-b [width]))

(state (kv [layers 2 heads context (/ width heads)] cache-type))

(defn attention-block [x l]
  (let [size (/ width heads)
        qkv (linear (layer-norm x (norm1-w l) (norm1-b l)) (qkv-w l) (qkv-b l))
        [q k v] (split-heads qkv size heads heads)]
    (linear (attend q k v (kv l) (lowered-by (alibi-slope heads))) (proj-w l) (proj-b l))))

(defn layer [x l]
  (let [x (+ x (attention-block x l))
        h (gelu (linear (layer-norm x (norm2-w l) (norm2-b l)) (in-w l) (in-b l)))]
    (+ x (linear h (out-w l) (out-b l)))))

(entry logits [tokens positions]
  (let [x (fold layer (rows wte tokens) (range layers))]
    (matmul-transposed (layer-norm (last x) normf-w normf-b) wte)))

(generate logits {:max-new-tokens 32 :temperature 0.8})
