; Functions of functions: each row, all slopes, slopes along a direction; and Fourier's transform.
(require-dialect linalg tensor)
(require nn)
(require arrays)
(require gradients)

; f of each row of x along its first dimension, one after the other in one loop: (vmap f x), or of several tensors with
; as many rows (vmap (fn [[a b]] …) [x y]); f gives a tensor or a list of them
(defn vmap [f xs] (nth (scan (fn [state rows] [state (f rows)]) 0 xs) 1))

(defn elements-of [x] (fold * 1 (shape x)))

; the slopes of each element of (f x) by each of x: [of y … of x …], by as many rounds of one loop as y has elements
(defn jacobian [f x]
  (let [y (f x)
        n (elements-of y)
        row (fn [state i]
              (let [y (reshape (f x) [n])
                    [g] (gradients (sum (tensor [j n] (select (= i j) (at y j) 0.0))) [x])]
                [state g]))]
    (reshape (nth (scan row 0 n) 1) (concat (shape y) (shape x)))))

; [y dy]: (f x), and how fast it changes as x moves along t, which has x's shape: the gradient of a gradient
(defn jvp [f x t]
  (let [y (f x)
        along (full (shape y) 0.0 (summed-in y))
        total (fn [a] (sum (reshape a [(elements-of a)])))
        [g] (gradients (total (* y along)) [x])
        [dy] (gradients (total (* g t)) [along])]
    [y dy]))

; ---- Fourier's transform of rows, "An Algorithm for the Machine Calculation of Complex Fourier Series", Cooley and
; Tukey 1965: halves of halves down to an odd length, which is a product with a matrix

; an angle of k parts of n, in a type
(defn turn [k n type] (* (/ (* 2 pi) n) (cast k type)))

; [m n] and [m n], real and imaginary -> [real imaginary]
(defn fourier-rows [re im]
  (let [[m n] (shape re)]
    (if (= (mod n 2) 0)
      (let [h (quot n 2)
            apart (fn [x] (reshape (transpose (reshape x [m h 2]) [0 2 1]) [(* m 2) h]))
            [fr fi] (fourier-rows (apart re) (apart im))
            [er ei] [(part-of-halves fr m h 0) (part-of-halves fi m h 0)]
            [odd-r odd-i] [(part-of-halves fr m h 1) (part-of-halves fi m h 1)]
            c (tensor [k h] (cos (turn (cast k i32) n (summed-in re))))
            s (tensor [k h] (sin (turn (cast k i32) n (summed-in re))))
            tr (+ (* odd-r c) (* odd-i s))
            ti (- (* odd-i c) (* odd-r s))]
        [(join [(+ er tr) (- er tr)] 1) (join [(+ ei ti) (- ei ti)] 1)])
      (let [angle (fn [j k] (turn (mod (* (cast j i32) (cast k i32)) (: n i32)) n (summed-in re)))
            c (tensor [j n k n] (cos (angle j k)))
            s (tensor [j n k n] (sin (angle j k)))
            by (fn [x w] (contract [r j] x [r k] w [j k]))]
        [(+ (by re c) (by im s)) (- (by im c) (by re s))]))))

; of [m 2 h] as [2m h], the first or the second of each pair: [m h]
(defn part-of-halves [x m h which] (reshape (slice (reshape x [m 2 h]) [0 which 0] [m 1 h]) [m h]))

; over the last dimension of a real and an imaginary part of any shape: [real imaginary]
(defn fft [re im]
  (let [sizes (shape re)
        n (dim re -1)
        flat (fn [x] (reshape x [(quot (elements-of x) n) n]))
        [r i] (fourier-rows (flat re) (flat im))]
    [(reshape r sizes) (reshape i sizes)]))

; what fft makes back into what it was made of
(defn inverse-fft [re im]
  (let [n (dim re -1)
        [r i] (fft re (- im))]
    [(/ r n) (/ (- i) n)]))
