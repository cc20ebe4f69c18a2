; GPT-2: "Language Models are Unsupervised Multitask Learners", Radford et al. 2019.
(require nn)

(config vocab 50257  padded-vocab (* 128 (ceil-div vocab 128))  context 1024  layers 12  heads 12  width 768
        hidden (* 4 width)  activation "gelu_new"  by-layer false  epsilon 1e-5  tied-head true  weight-type bf16
        cache-type (usual-cache-type weight-type)  dropout-rate 0.0)

(weights                                        ; bound by name to the checkpoint's tensors
  (wte [padded-vocab width] weight-type)
  (wpe [context width] weight-type)
  (per layers
    (ln1-w [width] {:init 1})                   (ln1-b [width])
    (qkv-w [(* 3 width) width] weight-type)     (qkv-b [(* 3 width)])
    (proj-w [width width] weight-type {:init (normal (/ 0.02 (sqrt (* 2 layers))))})
    (proj-b [width])
    (ln2-w [width] {:init 1})                   (ln2-b [width])
    (fc-w [hidden width] weight-type)           (fc-b [hidden])
    (out-w [width hidden] weight-type {:init (normal (/ 0.02 (sqrt (* 2 layers))))})
    (out-b [width]))
  (lnf-w [width] {:init 1})
  (lnf-b [width])
  (when (not tied-head)
    (head-w [padded-vocab width] weight-type)))

(state (kv [layers batch 2 heads context (/ width heads)] cache-type))    ; keys and values of every position so far

(defn attend-block [x l]
  (let [qkv (linear (layer-norm x (ln1-w l) (ln1-b l) epsilon) (qkv-w l) (qkv-b l))]
    (linear (attention qkv (kv l) heads (if by-layer (shrunk l) plain-score)) (proj-w l) (proj-b l))))

(defn shrunk [l] (fn [score head t position] (/ score (+ l 1.0))))

(def activate
  (cond (= activation "gelu") gelu-exact
        (= activation "relu") relu
        :else gelu))

(defn feed-forward [x l]
  (let [hidden (activate (linear (layer-norm x (ln2-w l) (ln2-b l) epsilon) (fc-w l) (fc-b l)))]
    (linear hidden (out-w l) (out-b l))))

(defn layer [x l]
  (let [x (+ x (dropout (attend-block x l) dropout-rate))]
    (+ x (dropout (feed-forward x l) dropout-rate))))

(entry logits [tokens positions]
  (let [x (dropout (+ (rows wte tokens) (rows wpe positions)) dropout-rate)
        x (fold layer x (range layers))]
    (matmul-transposed (layer-norm (last x) lnf-w lnf-b epsilon) (if tied-head wte head-w))))
