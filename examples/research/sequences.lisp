; 57 ops on sequences of numbers and of whole numbers, as encoders, samplers and data loaders write them.
(require-dialect arith)
(require nn arrays)
(config kept 3  classes 8)

; each element by itself
(defn by-element [x]
  (let [p (+ (square x) 0.5)
        rounded (+ (floor x) (ceil x) (round x))
        powers (+ (pow p 1.5) (log2 p) (log1p p) (log p) (expm1 (sin x)) (exp (cos x)))
        roots (+ (sqrt p) (rsqrt p) (tanh x) (erf x))]
    (+ rounded powers roots (select (> x 0.5) (min x 2.0) (max (abs x) 0.1)))))

; along each sequence
(defn along [x ids]
  (let [[n m] (shape x)
        half (quot m 2)
        [left right] (split x [half (- m half)] 1)
        padded (pad (slice x [0 1] [n (- m 1)]) 1 1 0 0.25)
        pair (mean (stack [x (transpose (transpose x [1 0]) [1 0])] 0) 0)
        put (insert left x [0 (- m half)] [n half])
        places (tensor [i m] (at ids 0 i))]
    (fold + (cumsum x 1)
          [(cumprod (+ 1.0 (* 0.01 x)) 1) (sort x) (flip x 1) (roll x 2 1) (join [right left] 1) padded pair put
           (gather x places 1) (log-softmax x) (softmax x)])))

; one number of each sequence, or of them all
(defn measured [x]
  (fold + (mean x 1)
        [(variance x 1) (max-along x 1) (min-along x 1) (sum-along x 1) (product-along (+ 1.0 (* 0.01 x)) 1)]))

; whole numbers
(defn whole-numbers [ids]
  (tensor [i (dim ids 0) j (dim ids 1)]
    (let [k (at ids i j) [one three] [(: 1 i32) (: 3 i32)]
          bits (+ (arith.andi k three) (arith.ori k one) (arith.xori k three))
          shifts (+ (arith.shli k one) (arith.shrsi k one))]
      (+ (quot k 3) (mod k 3) (* k k) bits shifts (select (>= k three) (min k 5) (max k 1))))))

(entry ops [(x [batch length] f32) (ids [batch length] i32)]
  (let [[n m] (shape x)
        flat (reshape ids [(* n m)])
        [best places] (top-k x kept)
        rows (reshape x [(* n m) 1])]
    {:elements (by-element x) :along (along x ids) :measured (measured x) :whole (whole-numbers ids)
     :order (argsort x) :best best :places places :first (argmax x)
     :counts (bincount flat classes) :sums (segment-sum rows flat classes)
     :added (scatter-add (full [classes 1] 1.0 f32) rows flat)
     :hot (sum-along (one-hot (tensor [i m] (at ids 0 i)) classes) 0)
     :products (outer (tensor [i n] (at x i 0)) (tensor [j m] (at x 0 j)))
     :picked (gather-nd x (tensor [i n k 2] (select (= k 0) (cast i i32) (at ids i 0))))}))
