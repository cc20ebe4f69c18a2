; Training.  `(training logits)` makes the entries that training is made of from a model's entry of tokens and positions,
; whose loss is that of the next tokens; `(training loss-of)` from a function [tokens targets random] -> [loss right]: tokens
; and targets [batch length] i32; random is what dropout draws from, or nil where nothing is to be dropped; loss is the
; mean over the targets, and right is how many of them were the most probable token.  Both are evaluated in whole texts
; (`whole-texts`): the model's own layers can be called there, and look at the texts' rows in place of a cache.
;
;   train        tokens targets step seed lr warmup steps min-lr clip weight-decay beta1 beta2 -> loss grad-norm lr
;   accumulate   tokens targets step seed accumulate -> loss; adds 1 / accumulate of its gradients to states
;   apply        step lr warmup steps min-lr clip weight-decay beta1 beta2 -> grad-norm lr; forgets those gradients
;   evaluate     tokens targets -> loss right
;
; Steps count from 1; targets below 0 are ignored.  What the optimizer remembers of a weight W are states: W.m and W.v,
; W.master (the weight in f32, where the model's is bf16) and W.gradient (the sum over micro-batches).
(require-dialect arith math tensor)
(require nn)
(require gradients)

(config schedule "cosine"                      ; of the learning rate, after the warm-up: cosine, linear or constant
        head-rows 8192                         ; of which `head-loss` has scores at once on each device,
        head-parts 64                          ; or of so many more that this many parts are all of them
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

; The same for scores = x times the transpose of w, plus a bias if there is one, of which about `head-rows` rows are
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

; "Decoupled Weight Decay Regularization", Loshchilov and Hutter 2019.  what is [beta1 beta2 lr/(1 - beta1^step)
; 1/(1 - beta2^step) lr*weight-decay scale], each of no dimension; w is in f32 -> the next [m v w]
(defn adamw [w m v gradient what decays]
  (let [[beta1 beta2 rate correction decay scale] what
        m (elementwise (fn [m g b s] (+ (* b m) (* (- 1.0 b) (* s g)))) m gradient beta1 scale)
        v (elementwise (fn [v g b s] (+ (* b v) (* (- 1.0 b) (square (* s g))))) v gradient beta2 scale)
        kept (if decays (elementwise (fn [w d] (- w (* d w))) w decay) w)]
    [m v (elementwise
           (fn [w m v rate correction] (- w (/ (* rate m) (+ (sqrt (* correction v)) adam-epsilon))))
           kept m v rate correction)]))

; 1 / (1 - beta^step)
(defn unbiased [beta step]
  (elementwise (fn [b n] (/ 1.0 (- 1.0 (exp (* (cast n f32) (log b)))))) beta step))

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
               (fn [] (if (entry? trained) (next-token-loss trained tokens targets) (trained tokens targets random)))))

; ---- entries

; Matrices and tables decay; norms and biases, which have one dimension, do not.
(defn decays [w] (> (count (weight-shape w)) 1))

(defn training [trained]
  (let [weights (all-weights)
        loss-of (fn [tokens targets random] (loss-in-texts trained tokens targets random))
        of (fn [suffix which] (states-like which suffix f32))
        short (fn [w] (not (= (weight-dtype w) f32)))
        m (of ".m" weights)
        v (of ".v" weights)
        sums (of ".gradient" weights)
        masters (map (fn [w] (first (of ".master" (if (short w) [w] [])))) weights)
        step-down
        (fn [gradients step lr warmup steps min-lr clip weight-decay beta1 beta2]
          (let [[norm scale] (clipped-by gradients clip)
                rate (scheduled step lr warmup steps min-lr)
                what [beta1 beta2 (* rate (unbiased beta1 step)) (unbiased beta2 step) (* rate weight-decay) scale]
                first-step (elementwise (fn [n] (= n 1)) step)]
            (map (fn [w g m v master]
                   (let [full (if (short w) (select first-step (cast (whole w) f32) (whole master)) (whole w))
                         [next-m next-v next] (adamw full (whole m) (whole v) g what (decays w))]
                     (update! m next-m)
                     (update! v next-v)
                     (when (short w) (update! master next))
                     (update! w (cast next (weight-dtype w)))))
                 weights gradients m v masters)
            {:grad-norm norm :lr rate}))]
    (entry train [(tokens [batch length] i32) (targets [batch length] i32) (step [] i32) (seed [] i32) (lr [] f32)
                  (warmup [] f32) (steps [] f32) (min-lr [] f32) (clip [] f32) (weight-decay [] f32) (beta1 [] f32)
                  (beta2 [] f32)]
      (let [loss (first (loss-of tokens targets [seed step]))
            gradients-of-all (gradients loss weights)
            [norm rate] (results (step-down gradients-of-all step lr warmup steps min-lr clip weight-decay beta1 beta2))]
        {:loss loss :grad-norm norm :lr rate}))
    (entry accumulate [(tokens [batch length] i32) (targets [batch length] i32) (step [] i32) (seed [] i32)
                       (accumulate [] f32)]
      (let [loss (first (loss-of tokens targets [seed step]))]
        (map (fn [sum g] (update! sum (elementwise (fn [sum g n] (+ sum (/ g n))) (whole sum) g accumulate)))
             sums (gradients loss weights))
        {:loss loss}))
    (entry apply [(step [] i32) (lr [] f32) (warmup [] f32) (steps [] f32) (min-lr [] f32) (clip [] f32)
                  (weight-decay [] f32) (beta1 [] f32) (beta2 [] f32)]
      (let [found (step-down (map whole sums) step lr warmup steps min-lr clip weight-decay beta1 beta2)]
        (map (fn [sum] (update! sum (forgotten (whole sum)))) sums)
        found))
    (entry evaluate [(tokens [batch length] i32) (targets [batch length] i32)]
      (let [found (loss-of tokens targets nil)]
        {:loss (first found) :correct (nth found 1)}))))
