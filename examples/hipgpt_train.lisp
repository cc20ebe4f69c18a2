; HipGPT's model, to train and to generate with: GPT-2's blocks with ReLU, a hidden layer of any width, no norm behind the
; last block, and a head of its own.
; lispgpt train examples/hipgpt_train.lisp --data TEXT --vocab-size 5000 --run DIR --steps 2000 --batch 4 --length 32
; lispgpt run examples/hipgpt_train.lisp --checkpoint DIR --prompt "Once upon a time"
(require nn)
(require training)

(config vocab 5000  context 32  layers 2  heads 4  width 128  hidden 512  head-bias true
        dropout-rate 0.1  weight-type f32)

(weights                                        ; named as a checkpoint of HipGPT's has them; its head has no bias
  (tok-emb [vocab width] weight-type)
  (pos-emb [context width] weight-type)
  (per layers
    (qkv-w [(* 3 width) width] weight-type)     (qkv-b [(* 3 width)])
    (proj-w [width width] weight-type)          (proj-b [width])
    (fc-w [hidden width] weight-type)           (fc-b [hidden])
    (out-w [width hidden] weight-type)          (out-b [width])
    (ln1-w [width] {:init 1})                   (ln1-b [width])
    (ln2-w [width] {:init 1})                   (ln2-b [width]))
  (out-proj [vocab width] weight-type)
  (when head-bias
    (out-bias [vocab])))

(state (kv [layers batch 2 heads context (/ width heads)]))       ; keys and values of every position so far

(defn layer [x l]
  (let [seen (attention (linear (layer-norm x (ln1-w l) (ln1-b l)) (qkv-w l) (qkv-b l)) (kv l) heads)
        x (+ x (dropout (linear seen (proj-w l) (proj-b l)) dropout-rate))
        between (relu (linear (layer-norm x (ln2-w l) (ln2-b l)) (fc-w l) (fc-b l)))]
    (+ x (dropout (linear between (out-w l) (out-b l)) dropout-rate))))

(entry logits [tokens positions]
  (let [x (fold layer (+ (rows tok-emb tokens) (rows pos-emb positions)) (range layers))]
    (linear-if head-bias (last x) out-proj out-bias)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
(training logits)
