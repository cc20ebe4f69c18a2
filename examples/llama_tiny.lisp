; Llama: "LLaMA: Open and Efficient Foundation Language Models", Touvron et al. 2023; grouped queries from Llama 2 on.
; lispgpt run examples/llama_tiny.lisp --checkpoint FOLDER --prompt "Once upon a time"
(require nn)

(config vocab 32000  context 1024  layers 12  heads 12  kv-heads 4  width 768  hidden 2048
        head-width 64  epsilon 1e-5  tied-head false  weight-type bf16
        rope-theta 10000.0  rope-factor 1.0  rope-low 1.0  rope-high 4.0  rope-original 0)

(weights                                        ; bound by name to the checkpoint's tensors
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
  (when (not tied-head)
    (head-w [vocab width] weight-type)))

(state (kv [layers batch 2 kv-heads context head-width] f32))    ; keys and values of every position so far

(defn frequency []                              ; of a head's i-th pair, slower for long contexts where the model wants it
  (let [plain (rotary-frequency rope-theta (/ head-width 2))]
    (if (= rope-factor 1.0)
      plain
      (slowed-frequency plain rope-factor rope-low rope-high rope-original))))

(defn attend-block [x l cosine sine]
  (let [qkv (linear (rms-norm x (norm1-w l) epsilon) (qkv-w l))
        part (fn [first count] (heads-of qkv head-width first count))
        q (rotate (part 0 heads) cosine sine)
        k (rotate (part heads kv-heads) cosine sine)
        v (part (+ heads kv-heads) kv-heads)]
    (linear (attend q k v (kv l)) (proj-w l))))

(defn layer [x l cosine sine]
  (let [x (+ x (attend-block x l cosine sine))]
    (+ x (swiglu (rms-norm x (norm2-w l) epsilon) (gate-w l) (up-w l) (down-w l)))))

(entry logits [tokens positions]
  (let [angles (rotary-angles positions (/ head-width 2) (frequency))
        [cosine sine] [(cos angles) (sin angles)]
        x (fold (fn [x l] (layer x l cosine sine)) (rows wte tokens) (range layers))]
    (matmul-transposed (rms-norm (last x) normf-w epsilon) (if tied-head wte head-w))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
