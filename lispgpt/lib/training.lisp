; Training.  `(training trained options?)` makes the entries that training is made of from what is trained:
;
;   an entry [tokens positions] that gives logits: its loss is that of the next tokens
;   a function [tokens targets random] -> [loss right]: tokens and targets [batch length] i32; random is what dropout
;     draws from, or nil where nothing is to be dropped; loss is the mean over the targets, and right is how many of them
;     were the most probable token
;   an entry of any inputs, or, with :inputs, a function of those and random: it gives a loss, or a map {:loss l …} of
;     numbers, which are shown as it learns.  What an entry calls `seed` and `step` are those of training
;
; The first two are evaluated in whole texts (`whole-texts`): the model's own layers can be called there, and look at the
; texts' rows in place of a cache.  Options, a map:
;
;   :inputs (inputs (x [batch 64] f32) …)   what a function is given in place of tokens and targets
;   :weights [w …]                          those that learn, such as (matching "lora"); by default all of floats
;   :frozen [w …]                           those that do not, of these
;   :optimizer muon                         adamw by default; see below for what one is
;   :groups [{:weights [w …] :optimizer muon :lr-scale 10.0 :decays false} …]   for some of the weights others
;
;   train        the inputs, step seed lr warmup steps min-lr clip weight-decay beta1 beta2 -> loss … grad-norm lr
;   accumulate   the inputs, step seed accumulate -> loss; adds 1 / accumulate of its gradients to states
;   apply        step lr warmup steps min-lr clip weight-decay beta1 beta2 -> grad-norm lr; forgets those gradients
;   evaluate     the inputs -> loss …
;
; Steps count from 1; targets below 0 are ignored.  What an optimizer remembers of a weight W are states: of adamw W.m and
; W.v; W.master (the weight in f32, where the model's is not) and W.gradient (the sum over micro-batches).
(require-dialect arith math tensor)
(require nn)
(require gradients)

(config schedule "cosine"                      ; of the learning rate, after the warm-up: cosine, linear or constant
        head-rows 8192                         ; of which `head-loss` has scores at once on each device,
        head-parts 64                          ; or of so many more that this many parts are all of them
        document-token -1                      ; that begins a document, of which no row sees another's; -1: all see all
        activation-type f32                    ; bf16: what products read is in bf16, their sums in f32
        adam-epsilon 1e-8)

; ---- losses

; 1.0 for targets that count, 0.0 for those below 0; [rows]
(defn counting [targets]
  (tensor [r (dim targets 0)] (select (>= (at targets r) 0) 1.0 0.0)))

; scores [rows columns], of which the first `vocab` columns count -> peaks of the rows, and sums of e^(score - peak)
(defn row-sums [scores vocab]
  (let [[n columns] (shape scores)
        peak (maximum (tensor [r n c columns] (select (< c vocab) (at scores r c) -inf)))]
    [peak (sum (tensor [r n c columns] (select (< c vocab) (exp (- (at scores r c) (at peak r))) 0.0)))]))

; -> the sum of -log softmax(scores) at the targets, and how many targets have no score above theirs; NaN for a target
; among the columns that only pad the vocabulary
(defn target-sums [scores targets peak total vocab]
  (let [n (dim targets 0)
        own (tensor [r n] (at scores r (cast (max (at targets r) 0) index)))
        own (if (= vocab (dim scores 1))
              own
              (tensor [r n] (select (< (at targets r) vocab) (at own r) (- inf inf))))
        counts (counting targets)]
    [(sum (tensor [r n] (* (at counts r) (- (+ (log (at total r)) (at peak r)) (at own r)))))
     (sum (tensor [r n] (select (>= (at own r) (at peak r)) (at counts r) 0.0)))]))

; [mean loss, how many were right]
(defn cross-entropy [scores targets vocab]
  (let [[peak total] (row-sums scores vocab)
        [loss right] (target-sums scores targets peak total vocab)]
    [(/ loss (max (sum (counting targets)) 1.0)) right]))

; `cross-entropy` of scores = x times the transpose of w, plus a bias if there is one, of which about `head-rows` rows are
; there at once: the gradients by x, w and bias are made with them, and are this function's other values.
; x [rows width], w [columns width], bias [columns]; scores are held in the type of x
(defn head-loss [x w targets vocab & bias]
  (let [[n width] (shape x)
        share (/ (counting targets) (max (sum (counting targets)) 1.0))
        unit (* head-rows (devices))
        most (* unit (ceil-div (ceil-div n unit) head-parts))
        chunk (fn [found start]
                (let [[loss right dx dw db] found
                      rows (min most (- n start))
                      part (slice x [start 0] [rows width])
                      own (slice targets [start] [rows])
                      scores (cast (fold + (matmul-transposed part w) bias) (dtype x))
                      [peak total] (row-sums scores vocab)
                      [l r] (target-sums scores own peak total vocab)
                      d (score-gradients scores own (slice share [start] [rows]) peak total vocab)]
                  [(+ loss l)
                   (+ right r)
                   (insert (contract [r k] d [r c] w [c k]) dx [start 0] [rows width])
                   (+ dw (contract [c k] d [r c] part [r k]))
                   (map (fn [b] (+ b (column-sums d))) db)]))
        start [0.0 0.0 (tensor.empty {:result (tensor-type [n width] f32)}) 0.0 (map (fn [b] 0.0) bias)]
        [loss right dx dw db] (fold chunk start (range 0 n most))]
    (concat [(* loss (/ 1.0 (max (sum (counting targets)) 1.0))) right dx dw] db)))

(defgradient head-loss [g made x w targets & bias]
  (let [found (map (fn [gradient] (scaled gradient g)) (rest (rest made)))]
    (concat [(first found) (nth found 1) nil] (rest (rest found)))))

; softmax(scores) less 1 at the targets, times each row's share in the loss
(defn score-gradients [scores targets share peak total vocab]
  (let [[n columns] (shape scores)
        factor (tensor [r n] (/ (at share r) (at total r)))]
    (tensor [r n c columns]
      (let [power (* (at factor r) (exp (- (at scores r c) (at peak r))))
            hit (select (= (cast c i32) (at targets r)) (at share r) 0.0)]
        (cast (select (< c vocab) (- power hit) 0.0) (dtype scores))))))

; [rows columns] -> [columns]
(defn column-sums [x]
  (let [[n columns] (shape x)]
    (contract [c] (tensor [r n] 1.0) [r] x [r c])))

; ---- the optimizer

; The learning rate of a step: up to lr over the warm-up, then by the schedule down to min-lr at the last step.
(defn scheduled [step lr warmup steps min-lr]
  (elementwise
    (fn [step lr warmup steps min-lr]
      (let [step (cast step f32)
            done (min (max (/ (- step warmup) (max (- steps warmup) 1.0)) 0.0) 1.0)
            left (cond (= schedule "cosine") (* 0.5 (+ 1.0 (cos (* pi done))))
                       (= schedule "linear") (- 1.0 done)
                       (= schedule "constant") 1.0
                       :else (error (str "schedule is cosine, linear or constant, and not " schedule)))]
        (select (< step warmup) (/ (* lr step) (max warmup 1.0)) (+ min-lr (* left (- lr min-lr))))))
    step lr warmup steps min-lr))

; Of all elements, row by row first.
(defn square-sum [x]
  (fold (fn [sums dimension] (sum sums)) (square x) (shape x)))

; The root of the sum of all squares, and what to multiply gradients by so that it is at most clip (0: as large as it is).
(defn clipped-by [gradients clip]
  (let [norm (sqrt (fold + 0.0 (map square-sum gradients)))]
    [norm (elementwise (fn [norm clip] (select (> clip 0.0) (min 1.0 (/ clip (+ norm 1e-6))) 1.0)) norm clip)]))

; 1 / (1 - beta^step)
(defn unbiased [beta step]
  (elementwise (fn [b n] (/ 1.0 (- 1.0 (exp (* (cast n f32) (log b)))))) beta step))

; An optimizer is a map:
;   :states   suffixes of what it remembers of a weight, each a state of the weight's shape in f32, zeros at first
;   :start    of {:lr :step :beta1 :beta2 :weight-decay}, tensors of no dimension: whatever the weights share
;   :next     of a weight in f32, the list of what is remembered of it, its gradient, what :start gave, and whether it
;             decays -> [the next weight, what is remembered next …]

; w less the share of it that decays; decay of no dimension
(defn decayed [w decay decays]
  (if decays (elementwise (fn [w d] (- w (* d w))) w decay) w))

; "Decoupled Weight Decay Regularization", Loshchilov and Hutter 2019
(def adamw
  {:states [".m" ".v"]
   :start (fn [now]
            (let [[lr step] [(get now :lr nil) (get now :step nil)]
                  [beta1 beta2] [(get now :beta1 nil) (get now :beta2 nil)]]
              [beta1 beta2 (* lr (unbiased beta1 step)) (unbiased beta2 step) (* lr (get now :weight-decay nil))]))
   :next (fn [w [m v] gradient [beta1 beta2 rate correction decay] decays]
           (let [m (elementwise (fn [m g b] (+ (* b m) (* (- 1.0 b) g))) m gradient beta1)
                 v (elementwise (fn [v g b] (+ (* b v) (* (- 1.0 b) (square g)))) v gradient beta2)]
             [(elementwise
                (fn [w m v rate correction] (- w (/ (* rate m) (+ (sqrt (* correction v)) adam-epsilon))))
                (decayed w decay decays) m v rate correction)
              m v]))})

(defn lr-and-decay [now] [(get now :lr nil) (* (get now :lr nil) (get now :weight-decay nil))])

; Gradient descent; beta1 is the momentum.
(def sgd
  {:states [".m"]
   :start (fn [now] (concat (lr-and-decay now) [(get now :beta1 nil)]))
   :next (fn [w [m] gradient [lr decay beta1] decays]
           (let [m (elementwise (fn [m g b] (+ (* b m) g)) m gradient beta1)]
             [(elementwise (fn [w m lr] (- w (* lr m))) (decayed w decay decays) m lr) m]))})

; "Symbolic Discovery of Optimization Algorithms", Chen et al. 2023
(def lion
  {:states [".m"]
   :start (fn [now] (concat (lr-and-decay now) [(get now :beta1 nil) (get now :beta2 nil)]))
   :next (fn [w [m] gradient [lr decay beta1 beta2] decays]
           (let [way (elementwise (fn [m g b] (+ (* b m) (* (- 1.0 b) g))) m gradient beta1)]
             [(elementwise (fn [w way lr] (- w (select (> way 0.0) lr (select (< way 0.0) (- 0.0 lr) 0.0))))
                           (decayed w decay decays) way lr)
              (elementwise (fn [m g b] (+ (* b m) (* (- 1.0 b) g))) m gradient beta2)]))})

; x [n rows columns], rows up to columns -> about the nearest matrices whose singular values are 1, by five rounds of
; "Newton-Schulz" with the numbers of Jordan et al. 2024; kind: of what is multiplied, bf16 there
(defn orthogonal-rows [x kind]
  (let [[n rows columns] (shape x)
        length (sqrt (sum (reshape (square x) [n (* rows columns)])))
        x (tensor [b n r rows c columns] (/ (at x b r c) (+ (at length b) 1e-7)))]
    (fold (fn [x round]
            (let [y (cast x kind)
                  a (contract [b r s] y [b r c] y [b s c])
                  half (cast a kind)
                  p (+ (* -4.775 a) (* 2.0315 (contract [b r s] half [b r t] half [b t s])))]
              (+ (* 3.4445 x) (contract [b r c] (cast p kind) [b r s] y [b s c]))))
          x (range 5))))

; "Muon: An optimizer for hidden layers", Jordan et al. 2024, for matrices: by the nearest orthogonal matrix of the
; gradient's mean, times the root of rows / columns where that is above 1.  beta1 is the momentum.  (muon-of f32) rounds
; nothing to bf16 and takes longer.
(defn muon-of [kind]
  {:states [".m"]
   :start (fn [now] (concat (lr-and-decay now) [(get now :beta1 nil)]))
   :next (fn [w [m] gradient [lr decay beta1] decays]
           (let [sizes (shape w)
                 rank (count sizes)
                 [rows columns] (if (< rank 2)
                                  (error (str "muon is for matrices, and a weight is " (type w)))
                                  [(nth sizes (- rank 2)) (nth sizes (- rank 1))])
                 n (quot (fold * 1 sizes) (* rows columns))
                 m (elementwise (fn [m g b] (+ (* b m) (* (- 1.0 b) g))) m gradient beta1)
                 way (elementwise (fn [m g b] (+ (* b m) (* (- 1.0 b) g))) m gradient beta1)
                 x (reshape way [n rows columns])
                 nearest (if (> rows columns)
                           (transpose (orthogonal-rows (transpose x [0 2 1]) kind) [0 2 1])
                           (orthogonal-rows x kind))
                 scale (sqrt (max 1.0 (/ (* 1.0 rows) columns)))]
             [(elementwise (fn [w o lr] (- w (* lr (* scale o))))
                           (decayed w decay decays) (reshape nearest sizes) lr)
              m]))})
(def muon (muon-of bf16))

; Zeros in the place of x, whatever it holds: a NaN too.
(defn forgotten [x] (elementwise (fn [v] (select (= v v) 0.0 0.0)) x))

; ---- what is trained

; How improbable a model, an entry of tokens and positions that gives logits, finds the targets of whole texts
(defn next-token-loss [model tokens targets]
  (let [[texts length] (shape tokens)
        n (* texts length)
        logits (first (results (model (reshape tokens [n]) (row-positions))))
        [rows columns] (if (= (rank logits) 2) (shape logits) [0 0])
        [vocab targets] [(configured "vocab" columns) (reshape targets [n])]
        parts (factors logits)]
    (if (or (not (= rows n)) (< columns vocab))
      (error (str "a loss wants logits of each of " n " positions over a vocabulary of " vocab ", and the entry gives "
                  (type logits) ": it should take those of the last positions by (last x) of nn"))
      (cond (not parts) (cross-entropy logits targets vocab)
            (= (count parts) 2) (head-loss (first parts) (nth parts 1) targets vocab)
            :else (head-loss (first parts) (nth parts 1) targets vocab (nth parts 2))))))

; -> [loss right …]
(defn loss-in-texts [trained tokens targets random]
  (whole-texts (shape tokens) random
               (fn [] (if (entry? trained) (next-token-loss trained tokens targets) (trained tokens targets random)))
               (document-starts tokens document-token)))

; ---- entries

; Matrices and tables decay; norms and biases, which have one dimension, do not.
(defn decays [w] (> (count (weight-shape w)) 1))

(defn in-floats [w] (> (count (filter (fn [kind] (= kind (str (weight-dtype w)))) ["f32" "bf16" "f16" "f64"])) 0))

(defn among [w weights]
  (> (count (filter (fn [other] (= (weight-name w) (weight-name other))) weights)) 0))

; A map with no other keys than these; what: whose it is
(defn check-keys [given known what]
  (map (fn [key]
         (when (= (count (filter (fn [k] (= k key)) known)) 0)
           (error (str what " has no option :" key "; there are :" (fold (fn [all k] (str all ", :" k)) (first known)
                                                                         (rest known))))))
       (keys given)))

; -> maps with the weights that learn alike, all of those that learn in one of them
(defn groups-of [options]
  (let [wanted (get options :weights (filter in-floats (all-weights)))
        learned (filter (fn [w] (not (among w (get options :frozen [])))) wanted)
        listed (map (fn [group]
                      (check-keys group ["weights" "optimizer" "lr-scale" "decays"] "a group of `training`")
                      (merge group {:weights (filter (fn [w] (among w learned)) (get group :weights []))}))
                    (get options :groups []))
        apart (fold (fn [all group] (concat all (get group :weights []))) [] listed)
        others {:weights (filter (fn [w] (not (among w apart))) learned)}
        all (filter (fn [group] (> (count (get group :weights [])) 0)) (concat listed [others]))]
    (if (= (count all) 0)
      (error "no weight is left to be trained")
      (map (fn [group] (merge {:optimizer (get options :optimizer adamw)} group)) all))))

; What is known of each weight that learns: its states, and how it goes on
(defn places-of [groups]
  (let [of (fn [w suffix] (first (states-like [w] suffix f32)))
        places
        (fn [group number]
          (map (fn [w]
                 {:weight w
                  :group number
                  :next (get (get group :optimizer adamw) :next nil)
                  :decays (get group :decays (decays w))
                  :held (map (fn [suffix] (of w suffix)) (get (get group :optimizer adamw) :states []))
                  :sum (of w ".gradient")
                  :master (if (= (weight-dtype w) f32) nil (of w ".master"))})
               (get group :weights [])))]
    (fold concat [] (map places groups (range (count groups))))))

; One weight's step; first-step: whether what is kept of the weight in f32 has still to be made of it
(defn go-on [place gradient shared first-step]
  (let [[w master] [(get place :weight nil) (get place :master nil)]
        full (if (= (weight-dtype w) f32)
               (whole w)
               (select first-step (cast (whole w) f32) (whole master)))
        next (call-with (get place :next nil)
                        [full (map whole (get place :held [])) gradient (nth shared (get place :group 0))
                         (get place :decays false)])]
    (map (fn [state value] (update! state value)) (get place :held []) (rest next))
    (when (not (= (weight-dtype w) f32)) (update! master (first next)))
    (update! w (cast (first next) (weight-dtype w)))))

; What is trained, as {:loss l …}: a map, a loss, or a list of a loss and how many were right
(defn measured [value]
  (cond (map? value)
        (if (= (count (filter (fn [k] (= k "loss")) (keys value))) 0)
          (error "what is trained gives a map without :loss")
          value)
        (not (list? value)) {:loss value}
        (= (count value) 0) (error "what is trained gives no loss: its list is empty")
        (= (count value) 1) {:loss (first value)}
        :else {:loss (first value) :correct (nth value 1)}))

(defn gives-logits [trained]
  (and (entry? trained) (= (map input-name (inputs trained)) ["tokens" "positions"])))

(defn of-text [trained options]
  (and (= (count (get options :inputs [])) 0) (or (not (entry? trained)) (gives-logits trained))))

; the inputs of what is trained, and (f random) -> what it says of them, in an entry that has those
(defn trained-inputs [trained options]
  (cond (of-text trained options) (inputs (tokens [batch length] i32) (targets [batch length] i32))
        (entry? trained) (inputs trained)
        :else (get options :inputs [])))

(defn losses-of [trained options taken]
  (fn [random]
    (let [values (map input-value taken)]
      (measured (cond (of-text trained options) (loss-in-texts trained (first values) (nth values 1) random)
                      (entry? trained) (call-with trained values)
                      :else (call-with trained (concat values [random])))))))

(defn training [trained & options]
  (let [options (first (concat options [{}]))
        known (check-keys options ["inputs" "weights" "frozen" "optimizer" "groups"] "`training`")
        taken (trained-inputs trained options)
        data (filter (fn [i] (not (or (= (input-name i) "step") (= (input-name i) "seed")))) taken)
        losses (losses-of trained options taken)
        groups (groups-of options)
        places (places-of groups)
        weights (map (fn [place] (get place :weight nil)) places)
        sums (map (fn [place] (get place :sum nil)) places)
        step-down
        (fn [gradients step lr warmup steps min-lr clip weight-decay beta1 beta2]
          (let [[norm scale] (clipped-by gradients clip)
                rate (scheduled step lr warmup steps min-lr)
                start (fn [group]
                        (call-with (get (get group :optimizer adamw) :start nil)
                                   [{:lr (* rate (get group :lr-scale 1.0)) :step step :beta1 beta1 :beta2 beta2
                                     :weight-decay weight-decay}]))
                shared (map start groups)
                first-step (elementwise (fn [n] (= n 1)) step)]
            (map (fn [place g] (go-on place (elementwise (fn [g s] (* s g)) g scale) shared first-step))
                 places gradients)
            {:grad-norm norm :lr rate}))]
    (entry train [(inputs data) (step [] i32) (seed [] i32) (lr [] f32) (warmup [] f32) (steps [] f32) (min-lr [] f32)
                  (clip [] f32) (weight-decay [] f32) (beta1 [] f32) (beta2 [] f32)]
      (let [found (losses [seed step])
            of-all (gradients (get found :loss nil) weights)
            said (step-down of-all step lr warmup steps min-lr clip weight-decay beta1 beta2)]
        (merge (if (of-text trained options) {:loss (get found :loss nil)} found) said)))
    (entry accumulate [(inputs data) (step [] i32) (seed [] i32) (accumulate [] f32)]
      (let [loss (get (losses [seed step]) :loss nil)]
        (map (fn [sum g] (update! sum (elementwise (fn [sum g n] (+ sum (/ g n))) (whole sum) g accumulate)))
             sums (gradients loss weights))
        {:loss loss}))
    (entry apply [(step [] i32) (lr [] f32) (warmup [] f32) (steps [] f32) (min-lr [] f32) (clip [] f32)
                  (weight-decay [] f32) (beta1 [] f32) (beta2 [] f32)]
      (let [found (step-down (map whole sums) step lr warmup steps min-lr clip weight-decay beta1 beta2)]
        (map (fn [sum] (update! sum (forgotten (whole sum)))) sums)
        found))
    (entry evaluate [(inputs taken)] (losses nil))))
