; Attention over whole sequences, without a cache, that can be differentiated.  What is kept for the gradient is one number
; a row, the logarithm of its sum of exponentials; scores are computed again: "FlashAttention-2", Dao 2023.
; q is [texts length heads size], k and v are [texts positions groups size]; heads / groups query heads share a key and
; value head.  Products are of numbers as they are stored, in bf16 or f32; their sums are in f32.
(require nn)
(require gradients)

; q [b s g h d], k [b t g d] -> [b g h s t]
(defn scores-of [q k]
  (contract [b g h s t] q [b s g h d] k [b t g d]))

(defgradient scores-of [gradient y q k]
  (let [g (cast gradient (dtype k))]
    [(contract [b s g h d] g [b g h s t] k [b t g d])
     (contract [b t g d] g [b g h s t] q [b s g h d])]))

; seen [b g h s t], of which lse is the log-sum-exp, v [b t g d] -> [b s g h d] in v's type
(defn attended [seen lse v]
  (cast (contract [b s g h d] (cast (softmax seen) (dtype v)) [b g h s t] v [b t g d])
        (dtype v)))

(defgradient attended [gradient y seen lse v]
  (let [[b g h s t] (shape seen)
        into (cast gradient (dtype v))
        size (dim y 4)
        inner (sum (tensor [b b g g h h s s d size]
                     (* (cast (at into b s g h d) f32) (cast (at y b s g h d) f32))))
        weights (tensor [b b g g h h s s t t] (exp (- (at seen b g h s t) (at lse b g h s))))
        through (contract [b g h s t] into [b s g h d] v [b t g d])]
    [(tensor [b b g g h h s s t t]
       (* (at weights b g h s t) (- (at through b g h s t) (at inner b g h s))))
     nil
     (contract [b t g d] (cast weights (dtype v)) [b g h s t] into [b s g h d])]))

; Softmax over the positions of (weigh score head t position), which is -inf for what a row does not see, times v:
; [texts length heads size] in v's type
(defn weighed-attention [q k v weigh]
  (let [[b s heads size] (shape q)
        [t groups] [(dim k 1) (dim k 2)]
        sharing (/ heads groups)
        scale (/ 1.0 (sqrt size))
        scores (scores-of (reshape q [b s groups sharing size]) k)
        seen (tensor [b b g groups h sharing s s t t]
               (weigh (* scale (at scores b g h s t)) (+ (* g sharing) h) t s))]
    (reshape (attended seen (log-sum-exp seen) v) [b s heads (dim v 3)])))

; Each row sees the positions up to its own; (weigh score head t position), where one is given, makes something else of
; a score, as for `attend`
(defn causal-attention [q k v & weigh]
  (let [weigh (first (concat weigh [plain-score]))]
    (weighed-attention q k v (fn [score head t position] (select (<= t position) (weigh score head t position) -inf)))))

; The same of qkv [rows 3*width], of texts one after the other -> [rows width]
(defn causal-self-attention [qkv texts heads & weigh]
  (let [[n columns] (shape qkv)
        size (/ columns (* 3 heads))
        [q k v] (map (fn [part] (reshape part [texts (/ n texts) heads size])) (split-heads qkv size heads heads))]
    (reshape (causal-attention q k v (first (concat weigh [plain-score]))) [n (* heads size)])))
