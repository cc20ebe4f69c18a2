; The delta rule: states that learn what a key stands for by how far off they were.  "Gated Delta Networks: Improving
; Mamba2 with Delta Rule", Yang, Kautz and Hatamizadeh 2024.  Tensors are of texts, as in scan.lisp.
(require-dialect arith gpu math memref scf vector)
(require scan)

(kernel walk-deltas [x query key keep share old y new]
  (let [[columns heads groups] [(dim x 2) (dim keep 2) (dim key 2)]]
    (walk old y new
          (fn [n t c piece states]
            (let [[head group] [(part-of columns heads c) (part-of columns groups c)]
                  seen (row-of key piece n t group)
                  states (* states (in-all states (memref.load keep n t head)))
                  said (over-lanes (total-of (* states seen)) (nth piece 2))
                  missing (* (memref.load share n t head) (- (memref.load x n t c) said))
                  states (math.fma seen (in-all states missing) states)]
              [(total-of (* states (row-of query piece n t group))) states])))))

; x [texts length columns] of heads, query and key [texts length groups states]
; of groups of them, keep and share [texts length heads]: of its states a column keeps `keep` times, adds key times `share`
; of what x is more than what they then say of key, and reads states * query -> [texts length columns]
(defn remember-differences [x query key keep share state]
  (remembered walk-of-deltas state x query key keep share))
(defn walk-of-deltas [x query key keep share old]
  (walked walk-deltas x old query key keep share))
(defgradient walk-of-deltas [g made & xs] (gradients-of deltas-by-steps g xs))

; what `remember-differences` walks, in ops that have gradients; of the states before each step, which a gradient reads,
; those of every so-manyth are kept
(defn deltas-by-steps [given]
  (let [[x query key keep share old] given
        [[b length columns] [_ _ all] [_ _ groups states]] [(shape x) (shape keep) (shape key)]
        [heads size] [(quot all groups) (quot columns all)]
        x (reshape x [b length groups heads size])
        [keep share] (map (fn [y] (reshape y [b length groups heads])) [keep share])
        steps-of (fn [y] (tensor [t length n b g groups c (dim y 3)] (at y n t g c)))
        step (fn [before [x query key keep share]]
               (let [kept (tensor [n b g groups h heads d size s states] (* (at before n g h d s) (at keep n g h)))
                     seen (contract [n g h d] kept [n g h d s] key [n g s])
                     missing (tensor [n b g groups h heads d size]
                               (* (at share n g h) (- (at x n g h d) (at seen n g h d))))
                     now (tensor [n b g groups h heads d size s states]
                           (+ (at kept n g h d s) (* (at missing n g h d) (at key n g s))))]
                 [now (contract [n g h d] now [n g h d s] query [n g s])]))
        chunk (fold (fn [found n] (if (= (mod length n) 0) n found)) 1 [2 4 8 16 32])
        [_ found] (scan step
                        (reshape old [b groups heads size states])
                        (concat [(tensor [t length n b g groups h heads d size] (at x n t g h d))]
                          (map steps-of [query key keep share]))
                        {:chunk chunk})]
    (reshape (tensor [n b t length g groups h heads d size] (at found t n g h d)) [b length columns])))

; x [… size], each row by the root of the sum of its squares
(defn of-length-one [x epsilon]
  (let [[b length groups size] (shape x)
        scale (elementwise (fn [v] (rsqrt (+ v epsilon))) (sum (square x)))]
    (tensor [n b t length g groups c size] (* (at x n t g c) (at scale n t g)))))

; The layer of Qwen 3 Next between its products.  both [rows …] has of each group of heads [query | key | values | gates],
; rates [rows 2*heads] likewise [shares | what is forgotten]; query, key and values are convolved (its weight, of all
; queries, then all keys, then all values); norm [value-width]; before and memory are the states of the convolution and
; of the columns -> [rows heads*value-width], each head of its own root mean square and times its gate
(defn delta-layer [both rates conv dt-b a-log norm before memory groups key-width epsilon]
  (let [[n heads value-width] [(dim both 0) (dim dt-b 0) (dim norm 0)]
        own (quot heads groups)
        [wide keyed inner] [(* own value-width) (* groups key-width) (* heads value-width)]
        parts-of (fn [x starts sizes]
                   (map (fn [start size]
                          (reshape (slice (reshape x [n groups (quot (dim x 1) groups)]) [0 0 start] [n groups size])
                                   [n (* groups size)]))
                        starts sizes))
        starts [0 key-width (* 2 key-width) (+ (* 2 key-width) wide)]
        [query key values gates] (parts-of both starts [key-width key-width wide wide])
        [share forgotten] (parts-of rates [0 own] [own own])
        room (tensor [r n c (+ keyed keyed inner)] 0.0)
        joined (insert key (insert query room [0 0] [n keyed]) [0 keyed] [n keyed])
        seen (convolved (insert values joined [0 (* 2 keyed)] [n inner]) conv 0.0 before)
        [b length] [(batch) (/ n (batch))]
        [query key] (map (fn [start]
                           (of-length-one (reshape (columns-of seen start keyed) [b length groups key-width]) 1e-6))
                         [0 keyed])
        step (softplus (+ forgotten dt-b))
        keep (tensor [r n h heads] (exp (- (* (at step r h) (exp (at a-log h))))))
        x (by-text (columns-of seen (* 2 keyed) inner))
        found (remember-differences x (* query (/ 1.0 (sqrt key-width))) key (by-text keep) (by-text (sigmoid share))
                                    memory)
        normed (reshape (rms-norm (reshape found [(* n heads) value-width]) norm epsilon) [n inner])]
    (* normed (silu gates))))
