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

; attend: what to make of queries, keys and values, and of the layer's number; drop: what to leave out, and where
(defn blocks-of [x attend drop]
  (fold (fn [x l]
          (let [seen (attend (linear (layer-norm x (ln1-w l) (ln1-b l)) (qkv-w l) (qkv-b l)) l)
                x (+ x (drop (linear seen (proj-w l) (proj-b l)) (+ 1 (* 2 l))))
                between (relu (linear (layer-norm x (ln2-w l) (ln2-b l)) (fc-w l) (fc-b l)))]
            (+ x (drop (linear between (out-w l) (out-b l)) (+ 2 (* 2 l))))))
        x (range layers)))

(defn bias [] (if head-bias [out-bias] []))

(entry logits [tokens positions]
  (let [x (+ (rows tok-emb tokens) (rows pos-emb positions))
        x (blocks-of x (fn [qkv l] (attention qkv (kv l) heads)) (fn [x place] x))]
    (fold + (matmul-transposed (last x) out-proj) (bias))))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})

(defn loss-of [tokens targets random]
  (let [[b t] (shape tokens)
        n (* b t)
        places (tensor [i n] (cast (mod i t) i32))
        x (+ (rows tok-emb (reshape tokens [n])) (rows pos-emb places))
        x (blocks-of x
                     (fn [qkv l] (causal-self-attention qkv b heads))
                     (fn [x place] (dropout x dropout-rate random place)))
        targets (reshape targets [n])]
    (if head-bias (head-loss x out-proj targets vocab out-bias) (head-loss x out-proj targets vocab))))

(training loss-of)
