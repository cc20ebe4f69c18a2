; Recurrences over positions, of which a state is kept in place of keys and values: "Mamba", Gu and Dao 2023, and
; "Transformers are SSMs", Dao and Gu 2024.  Tensors are of texts, [texts length …]; many positions at once give what one
; after the other do.
(require-dialect arith gpu math memref scf vector)
(require nn)
(require kernels)
(require doubling)

; x [rows columns] -> [texts length columns]
(defn by-text [x]
  (let [[n columns] (shape x)]
    (reshape x [(batch) (/ n (batch)) columns])))

; x [rows columns] -> [rows size], from a column on
(defn columns-of [x start size]
  (slice x [0 start] [(dim x 0) size]))

; what layer l is, by what config.json calls layers, or by such signs: "*" attends, "M" is Mamba's or another recurrence,
; "-" is a feed-forward layer and "E" has experts; and whether it attends, which none does where nothing is said
(defn layer-sign [layer-types l]
  (let [kind (nth layer-types l)]
    (cond (or (= kind "*") (= kind "attention") (= kind "full_attention")) "*"
          (or (= kind "M") (= kind "mamba") (= kind "linear_attention")) "M"
          (or (= kind "-") (= kind "mlp")) "-"
          (or (= kind "E") (= kind "moe")) "E"
          :else (error "no layer of this kind is known" kind))))
(defn attention-layer? [layer-types l]
  (if (= (count layer-types) 0) false (= (layer-sign layer-types l) "*")))

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

; ---- walks: a lane, or a few, take the positions one after the other for a column, whose states they hold

(defn numbers-of [n] (str "vector<" n "xf32>"))

; threads of a block; as few lanes of a column as have registers for their states and for two rows of as many numbers
(def walkers 32)
(defn lanes-for [states]
  (let [fits (fn [lanes] (<= (* 3 (quot states lanes)) (capability lane-registers)))
        most? (fn [lanes] (or (fits lanes) (= lanes walkers) (!= (mod states (* 2 lanes)) 0)))
        more (fn [more lanes] (if (most? lanes) lanes (more more (* 2 lanes))))]
    (if (= (capability lane-registers) 0) 1 (more more 1))))

; blocks for so many columns
(defn walks-over [columns states] (quot (+ (* columns (lanes-for states)) walkers -1) walkers))

; which of so many equal parts of the columns, as of heads, has column c
(defn part-of [columns parts c]
  (arith.divui c (: (quot columns parts) index)))

; (step text position column piece states) -> what a piece of a column's states, [start size lanes], adds to its number
; there, for y [texts length columns], and the piece after it; old and new [texts columns states] are those before the
; first position and after the last.  Lanes past the last column do as that one's, since all take part in sums, and
; store nothing.
(defn walk [old y new step]
  (let [[[_ length columns] states] [(shape y) (dim old 2)]
        lanes (lanes-for states)
        [text lane] [(block-id y) (+ (* (block-id x) walkers) (thread-id x))]
        [own size] [(arith.divui lane (: lanes index)) (quot states lanes)]
        column (arith.minui own (: (- columns 1) index))
        start (* (arith.remui lane (: lanes index)) size)
        left (over [t 0 length 1] [states (vector.load {:result (numbers-of size)} old text column start)]
               (let [[part states] (step text t column [start size lanes] states)
                     found (over-lanes part lanes)]
                 (when (and (< own columns) (= start 0)) (memref.store found y text t column))
                 states))]
    (when (< own columns) (vector.store left new text column start))))

; a piece of a row of x, whose last dimension it is, as a vector; a number in all places of one; the sum of a vector;
; and that over the lanes of a column
(defn row-of [x [start size _] & place]
  (vector.load {:result (numbers-of size)} x place start))
(defn in-all [like x] (vector.broadcast {:result (type like)} x))
(defn total-of [x] (vector.reduction {:result f32 :kind "#vector.kind<add>" :fastmath "#arith.fastmath<reassoc>"} x))
(defn over-lanes [x lanes]
  (fold (fn [x distance] (+ x (gpu.shuffle {:mode "xor"} x (: distance i32) (: (capability subgroup-size) i32))))
        x
        (halvings lanes)))

; the walk of a kernel over x [texts length columns] and others, from old [texts columns states] on
; -> its numbers [texts length columns], and the states after them
(defmacro walked [kernel x old & others]
  `(let [[b length columns] (shape ~x)]
     (launch ~kernel [(walks-over columns (dim ~old 2)) b] [walkers]
       ~x ~@others ~old (output (tensor-type [b length columns] f32)) (output (type ~old)))))

; (walk xs… old)'s numbers, from what state is; which is then what they end with
(defmacro remembered [walk state & xs]
  `(let [[found new] (~walk ~@xs (read-state ~state))]
     (write-state ~state new)
     found))

(kernel walk-columns [x dt rate into out-of old y new]
  (walk old y new
        (fn [n t c piece states]
          (let [step (memref.load dt n t c)
                keep (exp (* (row-of rate piece c) (in-all states step)))
                added (* (row-of into piece n t) (in-all states (* step (memref.load x n t c))))
                states (math.fma states keep added)]
            [(total-of (* states (row-of out-of piece n t))) states]))))

; Mamba's recurrence: x and dt [texts length columns], rate [columns states], into and out-of [texts length states]: of
; its states a column keeps exp(rate * dt), adds dt * x * into, and reads states * out-of -> [texts length columns]
(defn remember [x dt rate into out-of state]
  (remembered walk-of-columns state x dt rate into out-of))
(defn walk-of-columns [x dt rate into out-of old]
  (walked walk-columns x old dt rate into out-of))
(defgradient walk-of-columns [g made & xs] (gradients-of columns-by-doubling g xs))

(kernel walk-heads [x dt rate into out-of old y new]
  (let [[columns heads groups] [(dim x 2) (dim dt 2) (dim into 2)]]
    (walk old y new
          (fn [n t c piece states]
            (let [[head group] [(part-of columns heads c) (part-of columns groups c)]
                  step (memref.load dt n t head)
                  keep (in-all states (exp (* step (memref.load rate head))))
                  added (* (row-of into piece n t group) (in-all states (* step (memref.load x n t c))))
                  states (math.fma states keep added)]
              [(total-of (* states (row-of out-of piece n t group))) states])))))

; Mamba 2's, where a head's columns share dt [texts length heads] and rate [heads], and those of a group of heads into and
; out-of [texts length groups states]
(defn remember-heads [x dt rate into out-of state]
  (remembered walk-of-heads state x dt rate into out-of))
(defn walk-of-heads [x dt rate into out-of old]
  (walked walk-heads x old dt rate into out-of))
(defgradient walk-of-heads [g made & xs] (gradients-of heads-by-pairs g xs))

; x [rows columns] in so many groups of columns, each of its own root mean square; weight [columns]
(defn group-norm [x weight groups epsilon]
  (let [[n columns] (shape x)
        each (divided "a width of" columns groups "groups")
        ones (tensor [c each] 1.0)]
    (* (reshape (rms-norm (reshape x [(* n groups) each]) ones epsilon) [n columns]) weight)))

; x [rows columns] convolved with those before it, with a bias or without (0.0), and through a SiLU
(defn convolved [x weight bias before]
  (silu (+ (reshape (causal-convolution (by-text x) weight before) (shape x)) bias)))

; Mamba's layer between its products: x and dt [rows columns], into and out-of [rows states], a-log [columns states],
; skip [columns]; memory is the columns' state -> [rows columns]
(defn selective [x dt into out-of a-log skip memory]
  (let [rate (elementwise (fn [v] (- (exp v))) a-log)
        [xs dt into out-of] (map by-text [x (softplus dt) into out-of])]
    (+ (reshape (remember xs dt rate into out-of memory) (shape x)) (* x skip))))

; Mamba 2's: given is [gate | x | into | out-of | dt], of which the middle three [rows hidden+2*groups*states] are
; convolved (its weight and bias [… ]); before and memory are the states of the convolution and of the heads
; -> [rows hidden], and the gate of it
(defn state-space [given hidden conv conv-b dt-b a-log skip before memory groups]
  (let [[n heads mixed] [(dim given 0) (dim dt-b 0) (dim conv 0)]
        each (quot (- mixed hidden) (* 2 groups))
        seen (convolved (columns-of given hidden mixed) conv conv-b before)
        [b length size] [(batch) (/ n (batch)) (quot hidden heads)]
        [into out-of] (map (fn [i] (reshape (columns-of seen (+ hidden (* i groups each)) (* groups each))
                                            [b length groups each]))
                           (range 2))
        x (columns-of seen 0 hidden)
        dt (by-text (softplus (+ (columns-of given (+ hidden mixed) heads) dt-b)))
        rate (elementwise (fn [v] (- (exp v))) a-log)
        found (remember-heads (by-text x) dt rate into out-of memory)
        skipped (tensor [r n h heads d size] (* (at (reshape x [n heads size]) r h d) (at skip h)))]
    [(+ (reshape found [n hidden]) (reshape skipped [n hidden])) (silu (columns-of given 0 hidden))]))

; `state-space`, gated, each group of columns of its own root mean square
(defn normed-state-space [given norm conv conv-b dt-b a-log skip before memory groups epsilon]
  (let [[found gate] (state-space given (dim norm 0) conv conv-b dt-b a-log skip before memory groups)]
    (group-norm (* found gate) norm groups epsilon)))

(def places-of-three [array<i64: 0> array<i64: 1> array<i64: 2>])
(kernel walk-means [value key decay first-weight old y new]
  (walk old y new
        (fn [n t c _ states]
          (let [[sum weight top] (map (fn [place] (vector.extract {:static_position place} states)) places-of-three)
                [value key] [(memref.load value n t c) (memref.load key n t c)]
                top (select (> weight 0.0) top (: -1e38 f32))
                now (+ key (memref.load first-weight c))
                faded (- top (memref.load decay c))
                shares (fn [x y] (let [most (max x y)] [(exp (- x most)) (exp (- y most)) most]))
                [before own _] (shares top now)
                [kept added most] (shares faded key)]
            [(/ (+ (* sum before) (* value own)) (+ (* weight before) own))
             (vector.from_elements {:result (type states)}
               (+ (* sum kept) (* value added)) (+ (* weight kept) added) most)]))))

; What RWKV has in place of attention: of values so far, [texts length columns] as are keys, their mean by the weights
; exp(key - decay * how many positions ago it was put in); that of the newest is exp(key + first).  A column's three
; states are the sums of weighed values and of weights, and the logarithm of what both are divided by.
; "RWKV: Reinventing RNNs for the Transformer Era", Peng et al. 2023
(defn decaying-mean [key value decay first-weight state]
  (remembered walk-of-means state value key decay first-weight))
(defn walk-of-means [value key decay first-weight old]
  (walked walk-means value old key decay first-weight))
(defgradient walk-of-means [g made & xs] (gradients-of means-by-doubling g xs))
