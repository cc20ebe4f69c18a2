; Recurrences over positions, of which a state is kept in place of keys and values: "Mamba", Gu and Dao 2023, and
; "Transformers are SSMs", Dao and Gu 2024.  Tensors are of texts, [texts length …]; many positions at once give what one
; after the other do.
(require nn)

; x [rows columns] -> [texts length columns]
(defn by-text [x]
  (let [[n columns] (shape x)]
    (reshape x [(batch) (/ n (batch)) columns])))

; x [rows columns] -> [rows size], from a column on
(defn columns-of [x start size]
  (slice x [0 start] [(dim x 0) size]))

(defn softplus [x]
  (elementwise (fn [v] (+ (max v 0.0) (log (+ 1.0 (exp (- (abs v))))))) x))

; x [texts length columns] with a weight [columns 1 taps] for each position and those before it, the last tap for the
; position itself; state, of [texts taps-1 columns], keeps those before the first
(defn causal-convolution [x weight state]
  (let [[b length columns] (shape x)
        before (- (dim weight 2) 1)
        room (tensor [n b t (+ before length) c columns] 0.0)
        all (insert x (insert (read-state state) room [0 0 0] [b before columns]) [0 before 0] [b length columns])]
    (write-state state (slice all [0 length 0] [b before columns]))
    (tensor [n b t length c columns]
      (fold + 0.0 (map (fn [tap] (* (at all n (+ t tap) c) (at weight c 0 tap))) (range (+ before 1)))))))

; x [texts length columns] -> the row before each; state, of [texts 1 columns], keeps the one before the first
(defn row-before [x state]
  (let [[b length columns] (shape x)
        old (read-state state)]
    (write-state state (slice x [0 (- length 1) 0] [b 1 columns]))
    (tensor [n b t length c columns] (select (= t 0) (at old n 0 c) (at x n (max 0 (- t 1)) c)))))

; keep and new [texts length columns states]: after a position the state is `keep` times the one before, plus `new`
; -> the state after each position; state, of [texts columns states], is the one before the first, and then the last.
; By steps of 1, 2, 4 … positions: "Data Parallel Algorithms", Hillis and Steele 1986
(defn remember [keep new state]
  (let [[b length columns states] (shape keep)
        steps (map (fn [i] (fold * 1 (map (fn [_] 2) (range i)))) (range 20))
        joined (fn [found step]
                 (if (>= step length)
                   found
                   (let [[keep new] found
                         back (fn [x n t c s] (at x n (max 0 (- t step)) c s))]
                     [(tensor [n b t length c columns s states]
                        (* (at keep n t c s) (select (>= t step) (back keep n t c s) 1.0)))
                      (tensor [n b t length c columns s states]
                        (+ (at new n t c s) (* (at keep n t c s) (select (>= t step) (back new n t c s) 0.0))))])))
        [kept fresh] (fold joined [keep new] steps)
        old (read-state state)
        all (tensor [n b t length c columns s states] (+ (at fresh n t c s) (* (at kept n t c s) (at old n c s))))]
    (write-state state (reshape (slice all [0 (- length 1) 0 0] [b 1 columns states]) [b columns states]))
    all))

; The same where a head's numbers have one share to keep, exp(rate * dt): x [texts length groups heads size] of as many
; heads in each group, dt [texts length groups heads], rate [groups heads], into and out-of [texts length groups states]:
; a position adds dt * x * into to the state, of [texts groups heads size states], and reads state * out-of
; -> [texts length groups heads size]
(defn remember-heads [x dt rate into out-of state]
  (let [[b length groups heads size] (shape x)
        states (dim into 3)
        logs (tensor [n b t length g groups h heads] (* (at dt n t g h) (at rate g h)))
        so-far (tensor [t length k length] (select (<= k t) 1.0 0.0))
        sums (contract [b t g h] logs [b k g h] so-far [t k])
        scores (contract [b g t k] out-of [b t g s] into [b k g s])
        shares (tensor [n b g groups h heads t length k length]
                 (select (<= k t)
                         (* (at scores n g t k) (at dt n k g h) (exp (- (at sums n t g h) (at sums n k g h))))
                         0.0))
        fresh (contract [b t g h d] shares [b g h t k] x [b k g h d])
        old (read-state state)
        from-old (contract [b t g h d] out-of [b t g s] old [b g h d s])
        last (- length 1)
        late (tensor [n b k length g groups h heads d size]
               (* (at x n k g h d) (at dt n k g h) (exp (- (at sums n last g h) (at sums n k g h)))))
        added (contract [b g h d s] late [b k g h d] into [b k g s])]
    (write-state state
                 (tensor [n b g groups h heads d size s states]
                   (+ (at added n g h d s) (* (exp (at sums n last g h)) (at old n g h d s)))))
    (tensor [n b t length g groups h heads d size]
      (+ (at fresh n t g h d) (* (exp (at sums n t g h)) (at from-old n t g h d))))))

; x [rows columns] in so many groups of columns, each of its own root mean square; weight [columns]
(defn group-norm [x weight groups epsilon]
  (let [[n columns] (shape x)
        each (quot columns groups)
        ones (tensor [c each] 1.0)]
    (* (reshape (rms-norm (reshape x [(* n groups) each]) ones epsilon) [n columns]) weight)))

; Mamba 2's layer between its products: what the first one gives is [gate | x | into | out-of | dt], of which the middle
; three [rows hidden+2*groups*states] are convolved (its weight and bias [… ]); before and memory are the states of the
; convolution and of the heads; norm [hidden] is over as many groups -> [rows hidden]
(defn state-space [given conv conv-b dt-b a-log skip norm before memory groups norm-groups epsilon]
  (let [[n hidden heads] [(dim given 0) (dim norm 0) (dim dt-b 0)]
        mixed (dim conv 0)
        each (quot (- mixed hidden) (* 2 groups))
        seen (reshape (causal-convolution (by-text (columns-of given hidden mixed)) conv before) [n mixed])
        seen (silu (+ seen conv-b))
        [b length] [(batch) (/ n (batch))]
        [own size] [(quot heads groups) (quot hidden heads)]
        [into out-of] (map (fn [i] (reshape (columns-of seen (+ hidden (* i groups each)) (* groups each))
                                            [b length groups each]))
                           (range 2))
        x (reshape (columns-of seen 0 hidden) [b length groups own size])
        dt (reshape (softplus (+ (columns-of given (+ hidden mixed) heads) dt-b)) [b length groups own])
        rate (reshape (elementwise (fn [v] (- (exp v))) a-log) [groups own])
        skip (reshape skip [groups own])
        found (remember-heads x dt rate into out-of memory)
        all (tensor [n b t length g groups h own d size] (+ (at found n t g h d) (* (at x n t g h d) (at skip g h))))]
    (group-norm (* (reshape all [n hidden]) (silu (columns-of given 0 hidden))) norm norm-groups epsilon)))

; What RWKV has in place of attention: of values so far, [texts length columns] as are keys, their mean by the weights
; exp(key - decay * how many positions ago it was put in); that of the newest is exp(key + first).  The states, each of
; [texts columns], are the sums of weighed values and of weights, and the logarithm of what both are divided by.
; "RWKV: Reinventing RNNs for the Transformer Era", Peng et al. 2023
(defn decaying-mean [key value decay first-weight sums weights tops]
  (let [[b length columns] (shape key)
        steps (map (fn [i] (fold * 1 (map (fn [_] 2) (range i)))) (range 20))
        joined (fn [found step]
                 (if (>= step length) found
                   (let [[sum weight top] found
                         earlier (fn [x n t c] (at x n (max 0 (- t step)) c))
                         before (tensor [n b t length c columns]
                                  (select (>= t step) (- (earlier top n t c) (* step (at decay c))) -1e38))
                         over (max top before)
                         both (fn [x]
                                (tensor [n b t length c columns]
                                  (+ (* (at x n t c) (exp (- (at top n t c) (at over n t c))))
                                     (* (earlier x n t c) (exp (- (at before n t c) (at over n t c)))))))]
                     [(both sum) (both weight) over])))
        [sum weight top] (fold joined [value (tensor [n b t length c columns] 1.0) key] steps)
        [old-sum old-weight old-top] (map read-state [sums weights tops])
        old-top (tensor [n b c columns] (select (> (at old-weight n c) 0.0) (at old-top n c) -1e38))
        until (tensor [n b t length c columns] (- (at old-top n c) (* (cast (cast (+ t 1) i32) f32) (at decay c))))
        over (max top until)
        both (fn [x old]
               (tensor [n b t length c columns]
                 (+ (* (at x n t c) (exp (- (at top n t c) (at over n t c))))
                    (* (at old n c) (exp (- (at until n t c) (at over n t c)))))))
        all (map both [sum weight] [old-sum old-weight])
        newest (fn [x] (reshape (slice x [0 (- length 1) 0] [b 1 columns]) [b columns]))
        before (fn [x old]
                 (tensor [n b t length c columns]
                   (select (= t 0) (at old n c) (at x n (max 0 (- t 1)) c))))
        [sum weight top] (map before [(nth all 0) (nth all 1) over] [old-sum old-weight old-top])
        own (+ key first-weight)
        most (max top own)
        [old-share own-share] (map (fn [x] (exp (- x most))) [top own])
        found (/ (+ (* sum old-share) (* value own-share)) (+ (* weight old-share) own-share))]
    (map (fn [state x] (write-state state (newest x))) [sums weights tops] [(nth all 0) (nth all 1) over])
    found))
