; A kernel by hand: the loss of scores beside labels, and what the scores' gradient is, in one pass over each row
; ("Liger Kernel", Hsu et al. 2024), in a head that learns with it.
(require-dialect memref)
(require nn arrays kernels training)
(config inputs 6  classes 40)
(weights (head-w [classes inputs] {:init (normal 0.3)}))

; a block of one subgroup for each row
(kernel row-loss [scores labels losses slopes columns]
  (let [row (block-id x)
        label (memref.load labels row)
        element (fn [i] (memref.load scores row i))
        largest (row-total max -inf element columns)
        total (row-total + 0.0 (fn [i] (exp (- (element i) largest))) columns)]
    (each-column [i columns]
      (memref.store (- (/ (exp (- (element i) largest)) total) (select (= (cast i i32) label) 1.0 0.0)) slopes row i))
    (when (= (cast (thread-id x) i32) 0)
      (memref.store (- (+ (log total) largest) (element (cast label index))) losses row))))

(defn losses-and-slopes [scores labels]
  (launch row-loss [(dim scores 0)] [(capability subgroup-size)]
    scores labels (output (tensor-type [(dim scores 0)] f32)) (output (type scores)) (dim scores 1)))
(defn losses-of [scores labels] (first (losses-and-slopes scores labels)))
(defgradient losses-of [g losses scores labels]
  (let [[_ slopes] (losses-and-slopes scores labels)]
    [(tensor [n (dim scores 0) c (dim scores 1)] (* (at g n) (at slopes n c))) nil]))

(entry fit [(x [batch inputs] f32) (labels [batch] i32)]
  {:loss (/ (sum (losses-of (matmul-transposed x head-w) labels)) (* 1.0 (dim x 0)))})
(training fit)
