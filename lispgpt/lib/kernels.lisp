; GPU kernels by hand.  Rows go to blocks of one subgroup; lanes talk through shuffles.
(require-dialect arith gpu math memref scf)

; x as every lane's sum, max, …: combined with the lane at each distance in turn.
(defn across-lanes [combine x]
  (let [lanes (capability subgroup-size)]
    (fold (fn [x distance]
            (combine x (gpu.shuffle {:mode "xor"} x (: distance i32) (: lanes i32))))
          x
          (halvings lanes))))

; n/2, n/4, … 1
(defn halvings [n]
  (if (= n 1) [] (cons (/ n 2) (halvings (/ n 2)))))

; (over [i from to by step] [x start] next): a loop that carries x.
(defmacro over [index state body]
  `(let [start ~(nth state 1)]
     (scf.for {:result (type start)} (: ~(nth index 1) index) (: ~(nth index 2) index) (: ~(nth index 3) index) start
       (region (block [(: ~(first index) index) (: ~(first state) (type start))]
         (scf.yield ~body))))))

; One row of x [rows columns] in a block of one subgroup: out = softmax of the row.
(kernel row-softmax [x out columns]
  (let [row (block-id x) lane (thread-id x) lanes (capability subgroup-size)
        largest (across-lanes max
                  (over [i lane columns lanes] [m (: -inf f32)] (max m (memref.load x row i))))
        total (across-lanes +
                (over [i lane columns lanes] [s (: 0.0 f32)] (+ s (exp (- (memref.load x row i) largest)))))]
    (scf.for lane (: columns index) (: lanes index)
      (region (block [(: i index)]
        (memref.store (/ (exp (- (memref.load x row i) largest)) total) out row i))))))

; out = (x - mean) / sqrt(variance + 1e-5) * weight + bias, one row in a block of one subgroup.
(kernel row-layer-norm [x weight bias out columns]
  (let [row (block-id x) lane (thread-id x) lanes (capability subgroup-size)
        mean (/ (across-lanes + (over [i lane columns lanes] [s (: 0.0 f32)] (+ s (memref.load x row i)))) columns)
        variance (/ (across-lanes +
                      (over [i lane columns lanes] [s (: 0.0 f32)] (+ s (square (- (memref.load x row i) mean)))))
                    columns)
        scale (rsqrt (+ variance 1e-5))]
    (scf.for lane (: columns index) (: lanes index)
      (region (block [(: i index)]
        (memref.store (+ (* (- (memref.load x row i) mean) scale (memref.load weight i)) (memref.load bias i))
                      out row i))))))

; out [m n] = a [m k] times b [k n] in square tiles through shared memory, one thread an element; sizes divide by tile.
(kernel tiled-product [a b out k tile]
  (let [column (thread-id x) row (thread-id y)
        i (+ (* (block-id y) tile) row)
        j (+ (* (block-id x) tile) column)
        part-a (shared [tile tile] f32)
        part-b (shared [tile tile] f32)
        sum (over [from 0 k tile] [sum (: 0.0 f32)]
              (let []
                (memref.store (memref.load a i (+ from column)) part-a row column)
                (memref.store (memref.load b (+ from row) j) part-b row column)
                (gpu.barrier)
                (let [more (fold (fn [s t] (+ s (* (memref.load part-a row t) (memref.load part-b t column))))
                                 sum (range tile))]
                  (gpu.barrier)
                  more)))]
    (memref.store sum out i j)))

; out [n o] = x [n k] times the transpose of w [o k], in square tiles through shared memory, one thread an element.
; Sizes need not divide by tile: what lies outside counts as 0, and nobody stores it.
(kernel tiled-linear [x w out tile]
  (let [[n k] (shape x)
        o (dim w 0)
        column (thread-id x) row (thread-id y)
        i (+ (* (block-id y) tile) row)
        j (+ (* (block-id x) tile) column)
        j-loaded (+ (* (block-id x) tile) row)
        part-x (shared [tile tile] f32)
        part-w (shared [tile tile] f32)
        element (fn [m at along]
                  (select (< along k)
                          (cast (memref.load m (min at (- (dim m 0) 1)) (min along (- k 1))) f32)
                          (: 0.0 f32)))
        sum (over [from 0 k tile] [sum (: 0.0 f32)]
              (let []
                (memref.store (element x i (+ from column)) part-x row column)
                (memref.store (element w j-loaded (+ from column)) part-w row column)
                (gpu.barrier)
                (let [more (fold (fn [s t] (+ s (* (memref.load part-x row t) (memref.load part-w column t))))
                                 sum (range tile))]
                  (gpu.barrier)
                  more)))]
    (when (and (< i n) (< j o))
      (memref.store sum out i j))))

; ---- for models: the kernels on tensors, each beside its equivalent in nn

(defn hand-softmax [x]
  (launch row-softmax [(dim x 0)] [(capability subgroup-size)]
    x (output (type x)) (dim x 1)))

(defn hand-layer-norm [x weight bias]
  (launch row-layer-norm [(dim x 0)] [(capability subgroup-size)]
    x weight bias (output (type x)) (dim x 1)))

(defn hand-linear [x w]
  (let [tile 16
        n (dim x 0)
        o (dim w 0)
        tiles (fn [size] (/ (- (+ size tile) 1 (mod (- size 1) tile)) tile))]
    (launch tiled-linear [(tiles o) (tiles n)] [tile tile]
      x w (output (tensor-type [n o] f32)) tile)))
