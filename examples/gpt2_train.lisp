; GPT-2 learning: the model and the weights of gpt2.lisp, without its cache.
; lispgpt train examples/gpt2_train.lisp --preset gpt2-124m --data TEXT --run DIR --steps 1000 --batch 8 --length 1024
(require "gpt2.lisp")
(require training)

(config activation-type f32  dropout-rate 0.0)         ; bf16: what products read is in bf16, their sums in f32

(defn norm [x w b]                                     ; computed again for the gradient, not kept
  (cast (recompute layer-norm x w b epsilon) activation-type))

(defn attend-all [x l]
  (let [qkv (linear (norm x (ln1-w l) (ln1-b l)) (qkv-w l) (qkv-b l))]
    (linear (causal-self-attention (cast qkv activation-type) (batch) heads) (proj-w l) (proj-b l))))

(defn feed-forward-all [x l]
  (let [before (linear (norm x (ln2-w l) (ln2-b l)) (fc-w l) (fc-b l))
        hidden (gelu (cast before activation-type))]
    (linear (cast hidden activation-type) (out-w l) (out-b l))))

(defn hidden-of [tokens random]
  (let [[b t] (shape tokens)
        drop (fn [x place] (dropout x dropout-rate random place))
        block (fn [x l]
                (let [x (+ x (drop (attend-all x l) (+ 1 (* 2 l))))]
                  (+ x (drop (feed-forward-all x l) (+ 2 (* 2 l))))))
        words (reshape (rows wte (reshape tokens [(* b t)])) [b t width])
        x (drop (reshape (+ words (slice wpe [0 0] [t width])) [(* b t) width]) 0)]
    (norm (fold block x (range layers)) lnf-w lnf-b)))

(training (fn [tokens targets random]
            (head-loss (hidden-of tokens random) wte (reshape targets [(fold * 1 (shape targets))]) vocab)))

(generate logits {:max-new-tokens 64 :temperature 0.8 :top-k 50})
