; Layers.  x is [rows columns], in f32; weights are [out in], in bf16 or f32; sums are in f32.
(require-dialect arith linalg math scf tensor)
(require attention random rotary texts)

; ---- rows and products

; table [vocabulary width], ids [rows] -> [rows width]
(defn rows [table ids]
  (if (row-places? ids)
    (place-rows table)
    (tensor [n (dim ids 0) c (dim table 1)]
      (at table (at ids n) c))))

; The last row of each sequence: [batch*positions width] -> [batch width]; all rows within `at-every-position`.
(defn last [x]
  (if (every-position)
    x
    (let [[n width] (shape x)
          positions (/ n (batch))]
      (slice (reshape x [(batch) positions width]) [0 (- positions 1) 0] [(batch) nil width]))))

; [rows in] times the transpose of [out in] -> [rows out]
(defn matmul-transposed [x w]
  (when (and (= (rank x) 2) (not (and (= (rank w) 2) (= (dim x 1) (dim w 1)))))
    (error (str "rows of " (dim x 1) " are multiplied by weights of [out " (dim x 1) "] here, and "
                (sizes-as-text (shape w)) " is given")))
  (adapted (contract [n o] (stored (multiplied x)) [n k] w [o k]) x w))

(defn linear [x w & bias]
  (fold + (matmul-transposed x w) bias))

; `linear` with a bias that a program has only where `biased` is true
(defmacro linear-if [biased x w b]
  `(if ~biased (linear ~x ~w ~b) (linear ~x ~w)))

; x with each element 0 at a probability of rate, else divided by 1 - rate, in training alone: "Dropout: A Simple Way to
; Prevent Neural Networks from Overfitting", Srivastava et al. 2014.  What is dropped is drawn from [seed step], i32 of no
; dimension, and a place, a number that no other call has: those of the loss's texts, unless others are given.  It is
; computed again for the gradient.
(defn dropout [x rate & from]
  (let [[random place] (cond (= rate 0.0) [nil 0]
                             (= (count from) 2) from
                             :else (or (drawn) [nil 0]))]
    (if (= random nil)
      x
      (let [[n width] (shape x)
            [seed step] random]
        (tensor [r n c width]
          (let [counter [(at step) (: place i32) (: 0 i32)]
                word (philox-word (cast r i32) (cast c i32) width counter [(at seed) (: 0 i32)])]
            (select (>= (fraction word) rate) (* (at x r c) (/ 1.0 (- 1.0 rate))) 0.0)))))))

; ---- norms: "Layer Normalization", Ba et al. 2016; "Root Mean Square Layer Normalization", Zhang and Sennrich 2019

; An error where x is not [rows width] with a weight or bias of [width]
(defn check-norm [x weight]
  (when (not (and (= (rank x) 2) (= (shape weight) [(dim x 1)])))
    (error (str "a norm is of [rows width] with weights of [width] here, and " (sizes-as-text (shape x)) " with "
                (sizes-as-text (shape weight)) " is given"))))

; epsilon is 1e-5 where it is not given
(defn layer-norm [x weight bias & epsilon]
  (check-norm x weight)
  (check-norm x bias)
  (again normed-layer x (norm-weight weight) bias (first (concat epsilon [1e-5]))))
(defn normed-layer [x weight bias epsilon]
  (let [[n width] (shape x)
        mean (/ (sum x) width)
        centred (tensor [r n c width] (- (at x r c) (at mean r)))
        scale (elementwise (fn [v] (rsqrt (+ (/ v width) epsilon))) (sum (square centred)))]
    (tensor [r n c width]
      (+ (* (at centred r c) (at scale r) (at weight c)) (at bias c)))))

; `layer-norm` without a bias, and without a weight either where none is given
(defn centred-norm [x epsilon & weight]
  (let [[n width] (shape x)
        mean (/ (sum x) width)
        centred (tensor [r n c width] (- (at x r c) (at mean r)))
        scale (elementwise (fn [v] (rsqrt (+ (/ v width) epsilon))) (sum (square centred)))]
    (tensor [r n c width]
      (fold (fn [y w] (* y (at w c))) (* (at centred r c) (at scale r)) (map norm-weight weight)))))

(defn rms-norm [x weight epsilon]
  (check-norm x weight)
  (again normed-root x (norm-weight weight) epsilon))
(defn normed-root [x weight epsilon]
  (let [[n width] (shape x)
        scale (elementwise (fn [v] (rsqrt (+ (/ v width) epsilon))) (sum (square x)))]
    (tensor [r n c width] (* (at x r c) (at scale r) (at weight c)))))

; x [rows heads size], weight [size]: every head is a row
(defn head-norm [x weight epsilon]
  (let [[n heads size] (shape x)]
    (reshape (rms-norm (reshape x [(* n heads) size]) weight epsilon) [n heads size])))

; `head-norm` by means, too, and with weights of each head's own, [heads size]
(defn own-norm [x weight epsilon]
  (let [[n heads size] (shape x)
        y (reshape (centred-norm (reshape x [(* n heads) size]) epsilon) [n heads size])]
    (tensor [r n h heads i size] (* (at y r h i) (at weight h i)))))

; ---- activations

(defn relu [x] (relu-of (stored x)))
(defn relu-of [x] (max x 0.0))
(defgradient relu-of [g y x] [(select (> x 0.0) g 0.0)])                      ; 0 at 0

(defn sigmoid [x] (sigmoid-of (stored x)))
(defn sigmoid-of [x] (elementwise (fn [v] (/ 1.0 (+ 1.0 (exp (- v))))) x))
(defgradient sigmoid-of [g y x] [(* g y (- 1.0 y))])

(defn silu [x] (silu-of (stored x)))
(defn silu-of [x] (elementwise (fn [v] (/ v (+ 1.0 (exp (- v))))) x))
(defgradient silu-of [g y x]
  [(elementwise (fn [g v] (let [share (/ 1.0 (+ 1.0 (exp (- v))))] (* g share (+ 1.0 (* v (- 1.0 share)))))) g x)])

; The tanh form: "Gaussian Error Linear Units", Hendrycks and Gimpel 2016.
(defn gelu [x] (gelu-of (stored x)))
(defn gelu-of [x]
  (elementwise
    (fn [v]
      (let [v (cast v f32)
            half (* 0.5 v)]
        (math.fma half (tanh (* v (gelu-slope (* v v) 1.0))) half)))
    x))

; What v is multiplied by for the tanh, from its square; thrice: 3.0 for the derivative of that product
(defn gelu-slope [square thrice]
  (math.fma square (: (* thrice 0.044715 0.7978845608028654) f32) (: 0.7978845608028654 f32)))

; Its derivative in few instructions: (1 + t)/2 (1 + (1 - t) v slope), where t is the tanh
(defgradient gelu-of [g y x]
  [(elementwise
     (fn [g v]
       (let [v (cast v f32)
             square (* v v)
             t (tanh (* v (gelu-slope square 1.0)))
             half (: 0.5 f32)]
         (* g (math.fma half t half) (math.fma (- 1.0 t) (* v (gelu-slope square 3.0)) (: 1.0 f32)))))
     g x)])

; "Gaussian Error Linear Units" as it is defined: by the error function
(defn gelu-exact [x]
  (elementwise (fn [v] (* 0.5 v (+ 1.0 (erf (* 0.7071067811865476 v))))) (stored x)))

; "Primer", So et al. 2021
(defn squared-relu [x] (square (relu x)))

; An approximation that comes with GELU
(defn quick-gelu [x] (* x (sigmoid (* x 1.702))))

; The function that config.json calls so (`:activation` in `hugging-face`)
(defn activation-named [name]
  (cond (or (= name "silu") (= name "swish")) silu
        (or (= name "gelu") (= name "gelu_python")) gelu-exact
        (or (= name "gelu_new") (= name "gelu_pytorch_tanh") (= name "gelu_fast")) gelu
        (= name "quick_gelu") quick-gelu
        (= name "relu") relu
        (= name "relu2") squared-relu
        (= name "tanh") tanh
        (= name "sigmoid") sigmoid
        :else (error "no activation is called so here" name)))

; "GLU Variants Improve Transformer", Shazeer 2020: a feed-forward layer whose hidden numbers are times `activate` of
; others, its gate
(defn gated [activate x gate up down]
  (linear (* (activate (linear x gate)) (stored (linear x up))) down))

; `gated` with a SiLU (swiglu), and with a GELU (geglu)
(defn swiglu [x gate up down] (gated silu x gate up down))
(defn geglu [x gate up down] (gated gelu x gate up down))

; `swiglu` of both products in one, [rows 2*hidden], the gate before what it is times
(defn swiglu-of [both down]
  (let [[n hidden] [(dim both 0) (quot (dim both 1) 2)]
        half (fn [i] (slice both [0 (* i hidden)] [n hidden]))]
    (linear (* (silu (half 0)) (half 1)) down)))

; Between -most and most, or as it is where most is 0
(defn clipped [x most]
  (if (= (* 1.0 most) 0.0) x (max (- most) (min x most))))

; `clipped` by a tanh
(defn capped [x most]
  (if (= (* 1.0 most) 0.0) x (* most (tanh (/ x most)))))

; ---- padding: a chunk that a prompt does not fill has its first row more than once, at one position

; Whether row i is there for its own sake: the last row of its sequence is, and others where the next stands elsewhere.
; What adds up over rows has to leave the others out.
(defn row-real [i]
  (mind-padding)
  (let [positions (row-positions)
        n (dim positions 0)
        each (/ n (batch))
        i (cast i i32)
        inside (< (mod i each) (- each 1))
        following (cast (select inside (+ i 1) i) index)]
    (or (not inside) (!= (at positions (cast i index)) (at positions following)))))
