; Matrices: lengths, factors, equations and eigenvalues of small ones, "Matrix Computations", Golub and Van Loan 2013.
; Each step is a round of one loop, so that a large matrix takes no longer to compile; all have gradients.
(require-dialect linalg tensor)
(require nn)
(require arrays)

; [n] and [n] -> one number
(defn dot [x y] (sum (* x y)))

; the root of the sum of squares, along an axis
(defn vector-norm [x axis & keep] (sqrt (sum-along (square x) axis (first (concat keep [false])))))

(defn transposed [a] (transpose a [1 0]))
(defn product [a b] (contract [i j] a [i k] b [k j]))
; of a type, f32 where none is given
(defn identity-matrix [n & type]
  (let [type (first (concat type [f32]))]
    (tensor [i n j n] (select (= i j) (cast 1.0 type) (cast 0.0 type)))))

; 1.0 at the place of a number, 0.0 elsewhere
(defn unit-vector [n place & type]
  (let [type (first (concat type [f32]))]
    (tensor [i n] (select (= i place) (cast 1.0 type) (cast 0.0 type)))))

(defn among? [name names] (< 0 (count (filter (fn [n] (= n name)) names))))
(defn once [names] (fold (fn [kept n] (if (among? n kept) kept (concat kept [n]))) [] names))
(defn place-of [name names] (first (filter (fn [i] (= (nth names i) name)) (range (count names)))))
(defn check-diagonal [x names places]
  (if (= (count names) (count (shape x)))
    (map (fn [i]
           (let [size (dim x (nth places i))]
             (if (= (dim x i) size)
               nil
               (error (str "`" (nth names i) "` is the index of dimensions of " size " and of " (dim x i) " elements")))))
         (range (count names)))
    (error (str (count names) " indices are named, and the tensor has " (count (shape x)) " dimensions"))))

; what lies where dimensions of one name are at the same place, as many dimensions as there are names:
; (diagonal x [i i]) is [n] of x [n n], and (diagonal x [b i i]) is [b n] of x [b n n]
(defmacro diagonal [x names]
  (let [whole `whole
        sized (fold concat [] (map (fn [n] [n `(dim ~whole ~(place-of n names))]) (once names)))
        texts (map str names)
        places (map (fn [n] (place-of n names)) names)]
    `(let [~whole ~x]
       (check-diagonal ~whole [~@texts] [~@places])
       (tensor [~@sized] (at ~whole ~@names)))))

; [n n] -> the sum of its diagonal
(defn trace [a] (sum (diagonal a [i i])))

; products of what several tensors have, summed over the indices that the result has not:
; (einsum [i l] a [i j] b [j k] c [k l]), two tensors at a time from the first on
; of one alone the sums over the indices that the result has not, or its dimensions in another order; an index that
; comes twice in one tensor is of its diagonal: (einsum [] a [i i]) is the trace
(defn without-repeats [parts]
  (if (= (count parts) 0)
    []
    (let [[x names] (take 2 parts)
          own (once names)]
      (concat (if (= (count own) (count names)) [x names] [`(diagonal ~x ~names) `[~@own]])
              (without-repeats (drop 2 parts))))))
(defn einsum-form [result parts]
  (cond (= (count parts) 2) `(contract ~result ~@parts (full [] 1.0 (summed-in ~(first parts))) [])
        (= (count parts) 4) `(contract ~result ~@parts)
        true
        (let [[a of-a b of-b] (take 4 parts)
              others (drop 4 parts)
              later (fold concat (concat result []) (map (fn [i] (nth others (+ 1 (* 2 i)))) (range (quot (count others) 2))))
              own (concat of-a (filter (fn [n] (not (among? n of-a))) of-b))
              kept (filter (fn [n] (among? n later)) own)]
          (einsum-form result (concat [`(contract [~@kept] ~a ~of-a ~b ~of-b) `[~@kept]] others)))))
(defmacro einsum [result & parts] (einsum-form result (without-repeats parts)))

; a symmetric, positive definite a [n n] -> the lower triangle l of which it is the product l * l'
(defn cholesky [a]
  (let [n (dim a 0)
        step (fn [l j]
               (let [row (tensor [k n] (at l j k))
                     rest (tensor [i n] (select (< i j) 0.0 (at a i j)))
                     rest (- rest (contract [i] l [i k] row [k]))
                     scale (sqrt (at rest j))
                     column (tensor [i n] (select (< i j) 0.0 (/ (at rest i) scale)))]
                 [(+ l (outer column (unit-vector n j (summed-in a)))) nil]))]
    (first (scan step (full [n n] 0.0 (summed-in a)) n))))

; Gauss and Jordan's elimination, each step by the row that has most: a [n n] and b [n m] -> x, of which a * x is b
(defn eliminated [a b]
  (let [[n m] (shape b)
        step (fn [x k]
               (let [sizes (tensor [r 1 i n] (select (< i k) -1.0 (abs (at x i k))))
                     chosen (at (argmax sizes) 0)
                     from (fn [i] (select (= (cast i i32) (cast k i32)) chosen
                                          (select (= (cast i i32) chosen) (cast k i32) (cast i i32))))
                     x (tensor [i n j (+ n m)] (at x (from i) j))
                     pivot (tensor [j (+ n m)] (/ (at x k j) (at x k k)))]
                 [(tensor [i n j (+ n m)]
                    (select (= i k) (at pivot j) (- (at x i j) (* (at x i k) (at pivot j)))))
                  nil]))
        [x _] (if (= n 0) [b nil] (scan step (join [a b] 1) n))]
    (slice x [0 n] [n m])))
(defn solve [a b] (eliminated a b))
(defgradient solve [g x a b]
  (let [back (solve (transposed a) g)]
    [(- (product back (transposed x))) back]))
(defn inverse [a] (solve a (identity-matrix (dim a 0) (summed-in a))))

; a [m n], of which the columns are independent -> [q r]: columns of length 1 at right angles, and an upper triangle,
; whose product is a.  By Gram and Schmidt, twice for each column
(defn qr [a]
  (let [[m n] (shape a)
        step (fn [q j]
               (let [column (tensor [i m] (at a i j))
                     off (fn [v] (- v (contract [i] q [i k] (contract [k] q [i k] v [i]) [k])))
                     v (off (off column))
                     v (* v (at (elementwise (fn [s] (rsqrt s)) (reshape (dot v v) [1])) 0))]
                 [(+ q (outer v (unit-vector n j (summed-in a)))) nil]))
        [q _] (scan step (full [m n] 0.0 (summed-in a)) n)]
    [q (contract [j k] q [i j] a [i k])]))

; of a symmetric a [n n]: [values vectors], in no order; vectors are columns.  Jacobi's rotations, each of one pair
(defn symmetric-eigen [a & sweeps]
  (if (= (dim a 0) 1)
    [(reshape a [1]) (identity-matrix 1 (summed-in a))]
    (rotated-to-diagonal a (first (concat sweeps [8])))))
(defn rotated-to-diagonal [a sweeps]
  (let [n (dim a 0)
        pairs (* sweeps (quot (* n (- n 1)) 2))
        numbers (fn [which]
                  (fold concat [] (map (fn [i] (map (fn [j] (if (= which 0) i j)) (range (+ i 1) n))) (range n))))
        table (fn [list]
                (let [count-of (count list)]
                  (fold (fn [made i] (insert (tensor [j 1] (cast (nth list i) i32)) made [i] [1]))
                        (tensor [i count-of] (cast 0 i32)) (range count-of))))
        [first-of second-of] [(table (numbers 0)) (table (numbers 1))]
        step (fn [[a v] t]
               (let [place (mod t (dim first-of 0))
                     [p q] [(at first-of place) (at second-of place)]
                     entry (fn [i j] (at a i j))
                     off (entry p q)
                     apart (- (entry q q) (entry p p))
                     squares (+ (* apart apart) (* 4.0 off off))
                     root (sqrt (select (= squares 0.0) 1.0 squares))
                     t (/ (* 2.0 off) (+ apart (select (< apart 0.0) (- root) root)))
                     c (rsqrt (+ 1.0 (* t t)))
                     s (* t c)
                     turn (tensor [i n j n]
                            (let [[i j] [(cast i i32) (cast j i32)]]
                              (select (and (= i j) (or (= i p) (= i q))) c
                                      (select (= i j) 1.0
                                              (select (and (= i p) (= j q)) s
                                                      (select (and (= i q) (= j p)) (- s) 0.0))))))]
                 [[(product (transposed turn) (product a turn)) (product v turn)] nil]))
        [[a v] _] (scan step [a (identity-matrix n (summed-in a))] pairs)]
    [(tensor [i n] (at a i i)) v]))
