; GPU kernels by hand.  A kernel is what each thread does; it is inlined where it is launched, on a grid of blocks of
; threads, and takes memrefs and numbers:
;
;   (launch row-softmax [rows] [(capability subgroup-size)] x out columns)
;
; In a model's entry it is launched on tensors, and (output T) stands for each result, which is the launch's value:
;
;   (launch row-softmax [(dim x 0)] [(capability subgroup-size)] x (output (type x)) (dim x 1))
;
; Here rows go to blocks of one subgroup, whose lanes talk through shuffles.
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

; what a loop carries
(defn one-value [start]
  (if (list? start)
    (error (str "one value is carried, and this is a list of " (count start) ": `scan` carries several, as in "
                "(scan (fn [[a b] i] [[a b] nil]) [x y] 10)"))
    start))

; (over [i from to step] [x start] next): a loop that carries x.
(defmacro over [[i from to step] [x start] body]
  `(let [start (one-value ~start)]
     (scf.for {:result (type start)} (: ~from index) (: ~to index) (: ~step index) start
       (region
         (block [(: ~i index) (: ~x (type start))]
           (scf.yield ~body))))))

; element of every column of a row, combined: each lane takes every so-manyth column, and all lanes get the result.
(defn row-total [combine start element columns]
  (across-lanes combine
                (over [i (thread-id x) columns (capability subgroup-size)] [part (: start f32)]
                  (combine part (element i)))))

; (each-column [i columns] body…): the lanes share out the columns of a row.
(defmacro each-column [[i columns] & body]
  `(scf.for (thread-id x) (: ~columns index) (: (capability subgroup-size) index)
     (region
       (block [(: ~i index)] ~@body))))

; One row of x [rows columns] in a block of one subgroup: out = softmax of the row.
(kernel row-softmax [x out columns]
  (let [row (block-id x)
        element (fn [i] (memref.load x row i))
        largest (row-total max -inf element columns)
        power (fn [i] (exp (- (element i) largest)))
        total (row-total + 0.0 power columns)]
    (each-column [i columns]
      (memref.store (/ (power i) total) out row i))))

; out = (x - mean) / sqrt(variance + epsilon) * weight + bias, one row in a block of one subgroup.
(kernel row-layer-norm [x weight bias out columns epsilon]
  (let [row (block-id x)
        element (fn [i] (memref.load x row i))
        mean (/ (row-total + 0.0 element columns) columns)
        centred (fn [i] (- (element i) mean))
        variance (/ (row-total + 0.0 (fn [i] (square (centred i))) columns) columns)
        scale (rsqrt (+ variance epsilon))]
    (each-column [i columns]
      (def normal (* (centred i) scale))
      (memref.store (+ (* normal (memref.load weight i)) (memref.load bias i)) out row i))))

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

(defn hand-layer-norm [x weight bias & epsilon]
  (launch row-layer-norm [(dim x 0)] [(capability subgroup-size)]
    x weight bias (output (type x)) (dim x 1) (first (concat epsilon [1e-5]))))

(defn hand-linear [x w & bias]
  (fold + (hand-matmul-transposed x w) bias))

(defn hand-matmul-transposed [x w]
  (let [tile 16
        n (dim x 0)
        o (dim w 0)
        tiles (fn [size] (/ (- (+ size tile) 1 (mod (- size 1) tile)) tile))]
    (launch tiled-linear [(tiles o) (tiles n)] [tile tile]
      x w (output (tensor-type [n o] f32)) tile)))
