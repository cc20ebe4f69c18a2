; What each op makes of the gradient of its result: reverse-mode differentiation, "Evaluating Derivatives", Griewank and
; Walther 2008.  (defgradient op [g y a b …] [ga gb …]): g is the gradient of the result y, a and b are the operands; nil
; is no gradient.  Scalar rules hold inside `tensor` and `elementwise`, where g, y, a and b are single elements.
(require-dialect arith math linalg tensor)

; ---- arithmetic

(defgradient arith.addf [g y a b] [g g])
(defgradient arith.subf [g y a b] [g (- g)])
(defgradient arith.mulf [g y a b] [(* g b) (* g a)])
(defgradient arith.divf [g y a b] [(/ g b) (- (/ (* g y) b))])
(defgradient arith.remf [g y a b] [g (* g (/ (- y a) b))])
(defgradient arith.negf [g y a] [(- g)])
(defgradient arith.extf [g y a] [g])
(defgradient arith.truncf [g y a] [g])
(defgradient math.fma [g y a b c] [(* g b) (* g a) g])

; ---- choices: what was not chosen has no gradient, and of equals each has half

(defn for-larger [g a b] (select (> a b) g (select (= a b) (* 0.5 g) 0.0)))
(defgradient arith.select [g y c a b] [nil (select c g 0.0) (select c 0.0 g)])
(defgradient arith.maximumf [g y a b] [(for-larger g a b) (for-larger g b a)])
(defgradient arith.minimumf [g y a b] [(for-larger g b a) (for-larger g a b)])
(defgradient arith.maxnumf [g y a b] [(for-larger g a b) (for-larger g b a)])
(defgradient arith.minnumf [g y a b] [(for-larger g b a) (for-larger g a b)])
(defgradient math.absf [g y a] [(select (> a 0.0) g (select (< a 0.0) (- g) 0.0))])
(defgradient math.floor [g y a] [nil])
(defgradient math.ceil [g y a] [nil])
(defgradient math.round [g y a] [nil])
(defgradient math.roundeven [g y a] [nil])
(defgradient math.trunc [g y a] [nil])

; ---- powers and exponentials

(defgradient math.exp [g y a] [(* g y)])
(defgradient math.exp2 [g y a] [(* g y (log 2.0))])
(defgradient math.expm1 [g y a] [(* g (+ y 1.0))])
(defgradient math.log [g y a] [(/ g a)])
(defgradient math.log2 [g y a] [(/ g (* a (log 2.0)))])
(defgradient math.log10 [g y a] [(/ g (* a (log 10.0)))])
(defgradient math.log1p [g y a] [(/ g (+ a 1.0))])
(defgradient math.sqrt [g y a] [(/ (* 0.5 g) y)])
(defgradient math.rsqrt [g y a] [(* -0.5 g y y y)])
(defgradient math.cbrt [g y a] [(/ g (* 3.0 y y))])
(defgradient math.powf [g y a b] [(* g b (math.powf a (- b 1.0))) (* g y (log a))])

; ---- circles and bells

(defgradient math.sin [g y a] [(* g (cos a))])
(defgradient math.cos [g y a] [(- (* g (sin a)))])
(defgradient math.tan [g y a] [(* g (+ 1.0 (* y y)))])
(defgradient math.tanh [g y a] [(* g (- 1.0 (* y y)))])
(defgradient math.sinh [g y a] [(* g (math.cosh a))])
(defgradient math.cosh [g y a] [(* g (math.sinh a))])
(defgradient math.atan [g y a] [(/ g (+ 1.0 (* a a)))])
(defgradient math.erf [g y a] [(* g (/ 2.0 (sqrt pi)) (exp (- (* a a))))])
(defgradient math.erfc [g y a] [(- (* g (/ 2.0 (sqrt pi)) (exp (- (* a a)))))])

; ---- products: a contraction's gradients are contractions, with the lists of indices swapped; of bf16, so are they

(defgradient linalg.contract [g y x w]
  (let [[xi wi yi] (indices y)
        g (if (and (= (dtype x) bf16) (= (dtype w) bf16)) (cast g bf16) g)]
    [(contraction (shape x) xi g yi w wi)
     (contraction (shape w) wi g yi x xi)]))

; ---- reductions: sums repeat, a factor's gradient is the product of the others, where there are zeros without dividing
; by them, and extremes share among equals, of which there are none where the start is the extreme

(defn among-equals [g y x]
  (let [hit (select (= x (spread y y x)) 1.0 0.0)]
    (* hit (spread (/ g (max (summed-as y hit) 1.0)) y x))))

(defn by-the-others [g y x]
  (let [zero (select (= x 0.0) 1.0 0.0)
        zeros (summed-as y zero)
        factor (select (= x 0.0) 1.0 x)
        product (* g (multiplied-as y factor))
        alone (spread (select (= zeros 1.0) product 0.0) y x)
        all (spread (select (= zeros 0.0) product 0.0) y x)]
    (select (= x 0.0) alone (/ all factor))))

(defgradient (linalg.reduce arith.addf) [g y x] [(spread g y x)])
(defgradient (linalg.reduce arith.mulf) [g y x] [(by-the-others g y x)])
(defgradient (linalg.reduce arith.maximumf) [g y x] [(among-equals g y x)])
(defgradient (linalg.reduce arith.minimumf) [g y x] [(among-equals g y x)])

(defgradient linalg.softmax [g y x]
  (let [inner (sum (* g y))]
    [(* y (- g (reshape inner (concat (shape inner) [1]))))]))

; ---- shapes: a slice is an insertion's dual, and a reshape its own

(defgradient tensor.extract_slice [g y x] [(inserted g y)])
(defgradient tensor.insert_slice [g y part whole] [(window g y) (without-window g y)])
(defgradient tensor.expand_shape [g y x] [(reshape g (shape x))])
(defgradient tensor.collapse_shape [g y x] [(reshape g (shape x))])
(defgradient tensor.cast [g y x] [g])
