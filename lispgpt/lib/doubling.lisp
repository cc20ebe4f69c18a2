; Recurrences over positions by steps of 1, 2, 4 … positions, or by all pairs of positions at once, in ops that have
; gradients: "Data Parallel Algorithms", Hillis and Steele 1986.  What scan.lisp walks is differentiated by these, which
; take what a walk takes, old [texts columns states] last, as a vector, and give its numbers [texts length columns].
(require nn)
(require gradients)

; (other xs)'s gradients by each of xs, where g is that of its value
(defn gradients-of [other g xs]
  (let [copies (map stop-gradient xs)]
    (gradients (sum (sum (sum (* g (other copies))))) copies)))

(def doubled-steps (map (fn [i] (fold * 1 (map (fn [_] 2) (range i)))) (range 20)))

; keep and new [texts length columns states]: after a position the state is `keep` times the one before, plus `new`; old
; [texts columns states] is the one before the first -> the state after each position
(defn states-by-doubling [keep new old]
  (let [[b length columns states] (shape keep)
        joined (fn [found step]
                 (if (>= step length)
                   found
                   (let [[keep new] found
                         back (fn [x n t c s] (at x n (max 0 (- t step)) c s))]
                     [(tensor [n b t length c columns s states]
                        (* (at keep n t c s) (select (>= t step) (back keep n t c s) 1.0)))
                      (tensor [n b t length c columns s states]
                        (+ (at new n t c s) (* (at keep n t c s) (select (>= t step) (back new n t c s) 0.0))))])))
        [kept fresh] (fold joined [keep new] doubled-steps)]
    (tensor [n b t length c columns s states] (+ (at fresh n t c s) (* (at kept n t c s) (at old n c s))))))

; what `remember` walks
(defn columns-by-doubling [given]
  (let [[x dt rate into out-of old] given
        [[b length columns] [_ states]] [(shape x) (shape rate)]
        keep (tensor [n b t length c columns s states] (exp (* (at rate c s) (at dt n t c))))
        new (tensor [n b t length c columns s states] (* (at dt n t c) (at into n t s) (at x n t c)))]
    (contract [b t c] (states-by-doubling keep new old) [b t c s] out-of [b t s])))

; what `remember-heads` walks, by all pairs of positions: heads of the same group share into and out-of
(defn heads-by-pairs [given]
  (let [[x dt rate into out-of old] given
        [[b length columns] [_ _ all] [_ _ groups states]] [(shape x) (shape dt) (shape into)]
        [heads size] [(quot all groups) (quot columns all)]
        x (reshape x [b length groups heads size])
        dt (reshape dt [b length groups heads])
        rate (reshape rate [groups heads])
        logs (tensor [n b t length g groups h heads] (* (at dt n t g h) (at rate g h)))
        so-far (tensor [t length k length] (select (<= k t) 1.0 0.0))
        sums (contract [b t g h] logs [b k g h] so-far [t k])
        scores (contract [b g t k] out-of [b t g s] into [b k g s])
        shares (tensor [n b g groups h heads t length k length]
                 (let [kept (exp (select (<= k t) (- (at sums n t g h) (at sums n k g h)) 0.0))]
                   (select (<= k t) (* (at scores n g t k) (at dt n k g h) kept) 0.0)))
        fresh (contract [b t g h d] shares [b g h t k] x [b k g h d])
        from-old (contract [b t g h d] out-of [b t g s] (reshape old [b groups heads size states]) [b g h d s])]
    (reshape (tensor [n b t length g groups h heads d size]
               (+ (at fresh n t g h d) (* (exp (at sums n t g h)) (at from-old n t g h d))))
             [b length columns])))

; what `decaying-mean` walks
(defn means-by-doubling [given]
  (let [[value key decay first-weight old] given
        [b length columns] (shape key)
        joined (fn [found step]
                 (if (>= step length)
                   found
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
        [sum weight top] (fold joined [value (tensor [n b t length c columns] 1.0) key] doubled-steps)
        [old-sum old-weight old-top] (map (fn [place] (tensor [n b c columns] (at old n c place))) (range 3))
        old-top (tensor [n b c columns] (select (> (at old-weight n c) 0.0) (at old-top n c) -1e38))
        until (tensor [n b t length c columns] (- (at old-top n c) (* (cast (cast (+ t 1) i32) f32) (at decay c))))
        over (max top until)
        both (fn [x old]
               (tensor [n b t length c columns]
                 (+ (* (at x n t c) (exp (- (at top n t c) (at over n t c))))
                    (* (at old n c) (exp (- (at until n t c) (at over n t c)))))))
        all (map both [sum weight] [old-sum old-weight])
        before (fn [x old]
                 (tensor [n b t length c columns] (select (= t 0) (at old n c) (at x n (max 0 (- t 1)) c))))
        [sum weight top] (map before [(nth all 0) (nth all 1) over] [old-sum old-weight old-top])
        own (tensor [n b t length c columns] (+ (at key n t c) (at first-weight c)))
        most (max top own)
        [old-share own-share] (map (fn [x] (exp (- x most))) [top own])]
    (/ (+ (* sum old-share) (* value own-share)) (+ (* weight old-share) own-share))))
