; Tensors of any rank: reductions along an axis, putting together and taking apart, places, order, and losses.
; An axis is counted from 0, and below 0 from the last one on, -1.
(require-dialect linalg tensor)

; ---- axes and sizes

; which dimension of x an axis is, counted from 0
(defn axis-of [x axis] (if (< axis 0) (+ (rank x) axis) axis))

; a list with `new` where the axis stands
(defn replaced [list axis new] (concat (take axis list) [new] (drop (+ axis 1) list)))

; [before n after]: how many elements there are ahead of an axis, along it, and behind it
(defn around [x axis]
  (let [sizes (shape x) of (fn [part] (fold * 1 part))]
    [(of (take axis sizes)) (dim x axis) (of (drop (+ axis 1) sizes))]))

; a tensor of one number, of a list's sizes
(defn full [sizes number type]
  (let [kind (tensor-type sizes type)]
    (linalg.fill {:result kind} (cast number type) (tensor.empty {:result kind}))))

; the type in which a tensor's numbers are summed
(defn summed-in [x] (if (= "f64" (str (dtype x))) f64 f32))

; ---- reductions

; (f y) of y, which is x with the axis as its last; `keep` is [true] where the axis is to stay, with one element
(defn reduced-along [f x axis keep]
  (let [axis (axis-of x axis)
        order (filter (fn [d] (not (= d axis))) (range (rank x)))
        made (f (transpose x (concat order [axis])))]
    (if (first (concat keep [false])) (reshape made (replaced (shape x) axis 1)) made)))

; (sum-along x axis), (sum-along x axis true): the latter keeps the axis, with one element; so do those below
(defn sum-along [x axis & keep] (reduced-along sum x axis keep))
(defn max-along [x axis & keep] (reduced-along maximum x axis keep))
(defn min-along [x axis & keep] (reduced-along (fn [y] (reduce min inf y)) x axis keep))
(defn product-along [x axis & keep] (reduced-along (fn [y] (reduce * 1.0 y)) x axis keep))
(defn mean [x axis & keep]
  (reduced-along (fn [y] (/ (sum y) (dim y -1))) x axis keep))

; the mean of squares of what is left without the mean: divided by as many as there are
(defn variance [x axis & keep]
  (mean (square (- x (mean x axis true))) axis (first (concat keep [false]))))

; ---- together and apart

; tensors of one shape side by side along a new axis
(defn stack [parts axis]
  (let [sizes (shape (first parts))
        axis (if (< axis 0) (+ axis (count sizes) 1) axis)
        more (fn [list new] (concat (take axis list) [new] (drop axis list)))
        start (tensor.empty {:result (tensor-type (more sizes (count parts)) (dtype (first parts)))})]
    (fold (fn [whole i]
            (insert (nth parts i) whole (more (map (fn [size] 0) sizes) i) (more sizes nil)))
          start
          (range (count parts)))))

; tensors one behind the other along an axis
(defn join [parts axis]
  (let [axis (axis-of (first parts) axis)
        sizes (shape (first parts))
        zeros (map (fn [size] 0) sizes)
        whole (fold + 0 (map (fn [part] (dim part axis)) parts))
        start (tensor.empty {:result (tensor-type (replaced sizes axis whole) (dtype (first parts)))})
        put (fn [[made at-place] part]
              [(insert part made (replaced zeros axis at-place) (shape part)) (+ at-place (dim part axis))])]
    (first (fold put [start 0] parts))))

; a list of the parts of x along an axis, which have these sizes
(defn split [x sizes axis]
  (let [axis (axis-of x axis)
        zeros (map (fn [size] 0) (shape x))
        cut (fn [[parts start] size]
              [(concat parts [(slice x (replaced zeros axis start) (replaced (shape x) axis size))]) (+ start size)])]
    (first (fold cut [[] 0] sizes))))

; x with so many of a number before it and behind it along an axis
(defn pad [x axis before behind number]
  (let [axis (axis-of x axis)
        [a n c] (around x axis)
        longer (fn [x]
                 (tensor [i a j (+ before n behind) k c]
                   (select (and (>= j before) (< j (+ before n)))
                           (at x i (max 0 (min (- n 1) (- j before))) k)
                           (cast number (dtype x)))))]
    (defgradient longer [g y x] [(slice g [0 before 0] [a n c])])
    (if (= n 0)
      (full (replaced (shape x) axis (+ before behind)) number (dtype x))
      (reshape (longer (reshape x [a n c])) (replaced (shape x) axis (+ before n behind))))))

; ---- places

; along an axis from the last element to the first
(defn flip [x axis]
  (let [axis (axis-of x axis) [a n c] (around x axis) y (reshape x [a n c])]
    (reshape (tensor [i a j n k c] (at y i (- n 1 j) k)) (shape x))))

; along an axis by so many places towards its end; what leaves it comes back at its start
(defn roll [x by axis]
  (let [axis (axis-of x axis) [a n c] (around x axis) y (reshape x [a n c]) on (- n (mod by (max n 1)))]
    (reshape (tensor [i a j n k c] (at y i (mod (+ j on) n) k)) (shape x))))

; those of x along an axis whose numbers a tensor of one dimension has
(defn gather [x ids axis]
  (let [axis (axis-of x axis) [a n c] (around x axis) y (reshape x [a n c]) m (dim ids 0)]
    (reshape (tensor [i a j m k c] (at y i (at ids j) k)) (replaced (shape x) axis m))))

; [n] -> [n count]: 1.0 at each number's column, 0.0 elsewhere and where the number is none of them
(defn one-hot [ids count]
  (tensor [i (dim ids 0) c count] (select (= (cast c i32) (at ids i)) 1.0 0.0)))

; [n] and [m] -> [n m], their products
(defn outer [x y] (tensor [i (dim x 0) j (dim y 0)] (* (at x i) (at y j))))

; base [n …] with rows [m …] added where ids [m] say; ids that are no rows of it are held to its range
(defn scatter-add [base rows ids] (added-rows base rows ids))
(defgradient scatter-add [g y base rows ids] [g (gather g ids 0)])

; rows [m …] -> [count …]: sums of the rows that have the same id, from 0 on
(defn segment-sum [rows ids count]
  (scatter-add (full (replaced (shape rows) 0 count) 0.0 (summed-in rows)) rows ids))

; ids [n] of i32 -> [count]: how often each number from 0 on is among them
(defn bincount [ids count]
  (reshape (segment-sum (full [(dim ids 0) 1] 1.0 f32) ids count) [count]))

; x [a b … rest …] at the places ids [m k] of i32, each of k numbers -> [m rest …]
(defn gather-nd [x ids]
  (let [[m k] (shape ids)
        [own rest] [(take k (shape x)) (drop k (shape x))]
        step (fn [number d]
               (tensor [i m] (+ (* (at number i) (cast (nth own d) i32))
                                (max 0 (min (- (nth own d) 1) (at ids i d))))))
        number (fold step (tensor [i m] (cast 0 i32)) (range k))]
    (gather (reshape x (concat [(fold * 1 own)] rest)) number 0)))

; ---- sums of what is before

; 1 2 4 … below n
(defn doublings [n]
  (if (<= n 1)
    []
    (let [fewer (doublings (ceil-div n 2))]
      (concat fewer [(fold (fn [power _] (* 2 power)) 1 fewer)]))))

; [a n c] -> the same: along the middle each element and all before it
(defn summed-so-far [x]
  (let [[a n c] (shape x)
        add (fn [y step]
              (tensor [i a j n k c]
                (if (>= j step) (+ (at y i j k) (at y i (- j step) k)) (at y i j k))))]
    (fold add x (doublings n))))
(defgradient summed-so-far [g y x] [(flip (summed-so-far (flip g 1)) 1)])

; along an axis: each element and all before it
(defn cumsum [x axis]
  (reshape (summed-so-far (reshape x (around x (axis-of x axis)))) (shape x)))

; as `cumsum`, of products
(defn cumprod [x axis]
  (let [axis (axis-of x axis)
        order (concat [axis] (filter (fn [d] (not (= d axis))) (range (rank x))))
        y (transpose x order)
        step (fn [p row] (let [p (* p row)] [p p]))
        [_ made] (scan step (full (drop 1 (shape y)) 1 (dtype y)) y)]
    (transpose made (concat (range 1 (+ axis 1)) [0] (range (+ axis 1) (rank x))))))

; ---- order

; Orders put NaN with what is infinite, and equal elements as they stand: what x [rows n] is compared by
(defn compared [x]
  (let [x (stop-gradient x)
        floats (filter (fn [kind] (= kind (str (dtype x)))) ["f32" "bf16" "f16" "f64"])]
    (if (= (count floats) 0) x (elementwise (fn [v] (select (= v v) v (cast inf (dtype x)))) x))))

; how long rows may be that are put in order by counting, for each element, those that go ahead of it
(def longest-counted 64)

; [rows n], ids [rows n] of i32, all different -> [rows k] of the ids whose elements go first by `ahead`; of equals those
; of the lesser ids do
(defn first-by-count [x ids k ahead]
  (let [[rows n] (shape x)
        place (reduce + 0 (tensor [r rows c n o n]
                            (let [[a b] [(at x r o) (at x r c)]]
                              (select (or (ahead a b) (and (= a b) (< (at ids r o) (at ids r c)))) (: 1 i32) (: 0 i32)))))]
    (reduce + 0 (tensor [r rows j k c n] (select (= (at place r c) (cast j i32)) (at ids r c) (: 0 i32))))))

; (first-by-count …) of the columns themselves
(defn first-columns [x k ahead]
  (first-by-count x (tensor [r (dim x 0) c (dim x 1)] (cast c i32)) k ahead))

; [rows m] -> [rows m] of i32: the columns of each row, those of each chunk in order, by turns from its least element and
; from its greatest
(def longest-chunk 128)
(defn chunks-in-turns [x size]
  (let [[rows m] (shape x) chunks (quot m size)]
    (if (= size 1)
      (tensor [r rows c m] (cast c i32))
      (let [own (first-columns (reshape x [(* rows chunks) size]) size <)]
        (tensor [r rows c m]
          (let [chunk (quot c size)
                place (mod c size)
                place (select (= (mod chunk 2) 0) place (- size 1 place))]
            (+ (cast (* chunk size) i32) (at own (+ (* r chunks) chunk) place))))))))

; [rows n] -> [rows n] of i32: the columns of each row from the least element to the greatest.  Batcher's bitonic
; network, "Sorting Networks and Their Applications", 1968
(defn order-by-network [x]
  (let [[rows n] (shape x)
        steps (doublings n)
        m (fold * 1 (map (fn [step] 2) steps))
        keys (if (= m n) x (pad x 1 0 (- m n) inf))
        sorted-already (if (> m longest-chunk) longest-chunk 1)
        ids (chunks-in-turns keys sorted-already)
        keys (if (= sorted-already 1) keys (tensor [r rows c m] (at keys r (at ids r c))))
        pass (fn [[keys ids] [size distance]]
               (let [partner (fn [c] (- (+ c distance) (* 2 distance (mod (quot c distance) 2))))
                     swaps (tensor [r rows c m]
                             (let [p (partner c)
                                   [a b] [(at keys r c) (at keys r p)]
                                   [i j] [(at ids r c) (at ids r p)]
                                   greater (or (> a b) (and (= a b) (> i j)))
                                   least (= (mod (quot c distance) 2) (mod (quot c (* 2 size)) 2))]
                               (select (= least greater) (cast 1 i32) (cast 0 i32))))
                     moved (fn [y] (tensor [r rows c m]
                                     (select (= (at swaps r c) 1) (at y r (partner c)) (at y r c))))]
                 [(moved keys) (moved ids)]))
        within-size (fn [size] (map (fn [d] [size d]) (filter (fn [d] (<= d size)) (reverse steps))))
        stages (fold concat [] (map within-size (filter (fn [size] (>= size sorted-already)) steps)))
        [_ sorted] (fold pass [keys ids] stages)]
    (slice sorted [0 0] [rows n])))

; [rows n] -> [rows n] of i32: the columns of each row from the least element to the greatest, of equals the first ones
; first
(defn argsort [x]
  (let [x (compared x)]
    (if (<= (dim x 1) longest-chunk) (first-columns x (dim x 1) <) (order-by-network x))))

; [rows n] -> [rows n], each row from its least element to its greatest
(defn sort [x]
  (let [[rows n] (shape x) ids (argsort x)]
    (tensor [r rows c n] (at x r (at ids r c)))))

; the largest power of two whose square is about a number at most
(defn near-root [number]
  (fold (fn [size _] (if (< (* size size 2) number) (* 2 size) size)) 1 (doublings (+ 1 number))))

; [rows n] without NaNs -> [rows k] of i32: the columns of the k greatest elements of each row, the greatest first
(defn greatest-columns [x k]
  (let [[rows n] (shape x) size (near-root (ceil-div n (max 1 k)))]
    (cond (= k 0) (full [rows 0] 0 i32)
          (= k 1) (reshape (argmax x) [rows 1])
          (<= n longest-counted) (first-columns x k >)
          (= size 1) (slice (order-by-network (- x)) [0 0] [rows k])
          :else (greatest-by-chunks x k size))))

; what `greatest-columns` gives: they are in the k chunks with the greatest maxima, as k elements go ahead of all others
(defn greatest-by-chunks [x k size]
  (let [[rows n] (shape x)
        chunks (ceil-div n size)
        x (if (= n (* chunks size)) x (pad x 1 0 (- (* chunks size) n) -inf))
        parts (reshape x [rows chunks size])
        chosen (greatest-columns (maximum parts) k)
        chosen (first-by-count chosen chosen k <)
        seen (reshape (tensor [r rows i k j size] (at parts r (at chosen r i) j)) [rows (* k size)])
        place (greatest-columns seen k)]
    (tensor [r rows i k]
      (+ (* size (at chosen r (quot (at place r i) size))) (mod (at place r i) size)))))

; [rows n] -> the k greatest of each row, the greatest first and of equals the first one, and their columns, both [rows k]
(defn top-k [x k]
  (let [[rows n] (shape x)
        _ (if (> k n) (error (str "top-k of " k " where rows have " n " elements")) nil)
        ids (greatest-columns (compared x) k)]
    [(tensor [r rows c k] (at x r (at ids r c))) ids]))

; ---- losses

; the logarithm of softmax, over the last dimension
(defn log-softmax [x]
  (let [x (- x (reshape (stop-gradient (maximum x)) (replaced (shape x) (- (rank x) 1) 1)))]
    (- x (log (sum-along (exp x) -1 true)))))

; the loss of label-loss over the rows that a mask [rows] has, each as often as the mask says
(defn masked-loss [scores targets mask smoothing]
  (let [[rows columns] (shape scores)
        logs (log-softmax scores)
        own (tensor [r rows] (at logs r (max 0 (min (- columns 1) (at targets r)))))
        each (- (+ (* (- 1.0 smoothing) own) (* (/ smoothing columns) (sum logs))))]
    (/ (sum (* mask each)) (max (sum mask) 1e-9))))

; scores [rows columns], targets [rows] of i32 -> the mean of -log softmax(scores) at the targets, over the rows whose
; target is none to ignore.  `smoothing` is the share of the loss that is spread over all columns: "Rethinking the
; Inception Architecture", Szegedy et al. 2016
(defn label-loss [scores targets smoothing ignored]
  (let [[rows columns] (shape scores)
        logs (log-softmax scores)
        counts (tensor [r rows] (select (= (at targets r) ignored) 0.0 1.0))
        own (tensor [r rows] (at logs r (max 0 (min (- columns 1) (at targets r)))))
        each (- (+ (* (- 1.0 smoothing) own) (* (/ smoothing columns) (sum logs))))]
    (/ (sum (* counts each)) (max (sum counts) 1.0))))
