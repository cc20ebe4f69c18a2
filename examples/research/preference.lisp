; What is preferred becomes more probable than what is not ("Direct Preference Optimization", Rafailov et al. 2023), by a
; LoRA alone ("LoRA", Hu et al. 2021): the model without it is the reference.
(require nn arrays training)
(config vocab 48  heads 2  width 16  rank 2  beta 0.1)
(weights (table [vocab width] {:init (normal 0.5)}) (qkv-w [(* 3 width) width] {:init (normal 0.2)})
  (out-w [width width] {:init (normal 0.2)}) (lora-a [rank width] {:init (normal 0.2)})
  (lora-b [(* 3 width) rank]))

; how probable texts [n length] are, each by the sum of the logarithms of its tokens behind the first
(defn log-chance [tokens adapted]
  (let [[n length] (shape tokens)
        x (rows table (reshape tokens [(* n length)]))
        qkv (matmul-transposed x qkv-w)
        qkv (if adapted (+ qkv (matmul-transposed (matmul-transposed x lora-a) lora-b)) qkv)
        [q k v] (map (fn [part] (reshape part [n length heads (quot width heads)]))
                     (split-heads qkv (quot width heads) heads heads))
        x (+ x (matmul-transposed (reshape (attention-to q k v {:causal true}) [(* n length) width]) out-w))
        logs (reshape (log-softmax (matmul-transposed x table)) [n length vocab])]
    (sum (tensor [b n t (- length 1)] (at logs b t (at tokens b (+ t 1)))))))

(entry fit [(chosen [batch length] i32) (rejected [batch length] i32)]
  (let [gain (fn [tokens] (- (log-chance tokens true) (stop-gradient (log-chance tokens false))))
        margin (* beta (- (gain chosen) (gain rejected)))]
    {:loss (/ (sum (log1p (exp (- 0.0 margin)))) (* 1.0 (dim chosen 0))) :margin (/ (sum margin) (* 1.0 (dim chosen 0)))}))
(training fit {:weights (matching "lora")})
