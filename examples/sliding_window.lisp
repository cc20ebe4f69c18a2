; A language model whose positions look back over a window only, on whole texts at once: the logits after every token.
; "Longformer", Beltagy et al. 2020, as in "Mistral 7B", 2023; positions turn as in "RoFormer", Su et al. 2021.
; lispgpt run examples/sliding_window.lisp --checkpoint W.safetensors --entry score --input tokens=t.npy --output y.npz
(require nn)

(config vocab 512  layers 2  heads 4  width 64  hidden 160  window 16  theta 10000.0)

(weights
  (wte [vocab width] bf16)
  (per layers
    (norm1-w [width] {:init 1})
    (qkv-w [(* 3 width) width] bf16)
    (proj-w [width width] bf16)
    (norm2-w [width] {:init 1})
    (gate-w [hidden width] bf16) (up-w [hidden width] bf16) (down-w [width hidden] bf16))
  (normf-w [width] {:init 1}))

; q, k and v [batch length heads size] -> the same: softmax over the `window` positions up to a row's own
(defn attend-near [q k v]
  (let [[n length count size] (shape q)
        scores (contract [b h s t] q [b s h d] k [b t h d])
        scale (/ 1.0 (sqrt size))
        seen (tensor [b n h count s length t length]
               (select (<= t s)
                       (select (< (- s t) window) (* scale (at scores b h s t)) -inf)
                       -inf))]
    (contract [b s h d] (softmax seen) [b h s t] v [b t h d])))

(defn attention-block [x l texts length cosine sine]
  (let [size (/ width heads)
        qkv (linear (rms-norm x (norm1-w l) 1e-5) (qkv-w l))
        [q k v] (split-heads qkv size heads heads)
        by-text (fn [y] (reshape y [texts length heads size]))
        y (attend-near (by-text (rotate q cosine sine)) (by-text (rotate k cosine sine)) (by-text v))]
    (linear (reshape y [(* texts length) width]) (proj-w l))))

(entry score [(tokens [texts length] i32)] {:shapes [{texts 1 length 40} {texts 3 length 24}]}
  (let [rows-of-all (* texts length)
        places (tensor [r rows-of-all] (cast (mod r length) i32))
        pairs (/ width heads 2)
        angles (rotary-angles places pairs (rotary-frequency theta pairs))
        [cosine sine] [(cos angles) (sin angles)]
        layer (fn [x l]
                (let [x (+ x (attention-block x l texts length cosine sine))]
                  (+ x (swiglu (rms-norm x (norm2-w l) 1e-5) (gate-w l) (up-w l) (down-w l)))))
        x (fold layer (rows wte (reshape tokens [rows-of-all])) (range layers))]
    (reshape (matmul-transposed (rms-norm x normf-w 1e-5) wte) [texts length vocab])))
