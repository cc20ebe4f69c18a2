; Layers.  x is [rows columns], in f32; weights are [out in], in bf16 or f32; sums are in f32.
(require-dialect arith linalg math scf tensor)
(require rotary)

; ---- rows and products

; table [vocabulary width], ids [rows] -> [rows width]
(defn rows [table ids]
  (tensor [n (dim ids 0) c (dim table 1)]
    (at table (at ids n) c)))

; The last row of each sequence: [batch*positions width] -> [batch width]; all rows within `at-every-position`.
(defn last [x]
  (if (every-position)
    x
    (let [[n width] (shape x)
          positions (/ n (batch))]
      (slice (reshape x [(batch) positions width]) [0 (- positions 1) 0] [(batch) nil width]))))

; [rows in] times the transpose of [out in] -> [rows out]
(defn matmul-transposed [x w]
  (contract [n o] x [n k] w [o k]))

(defn linear [x w & bias]
  (fold + (matmul-transposed x w) bias))

; The same with a bias that a program has only where `biased` is true
(defmacro linear-if [biased x w b]
  `(if ~biased (linear ~x ~w ~b) (linear ~x ~w)))

; ---- norms: "Layer Normalization", Ba et al. 2016; "Root Mean Square Layer Normalization", Zhang and Sennrich 2019

; epsilon is 1e-5 where it is not given
(defn layer-norm [x weight bias & epsilon]
  (let [epsilon (first (concat epsilon [1e-5]))
        [n width] (shape x)
        mean (/ (sum x) width)
        centred (tensor [r n c width] (- (at x r c) (at mean r)))
        scale (elementwise (fn [v] (rsqrt (+ (/ v width) epsilon))) (sum (square centred)))]
    (tensor [r n c width]
      (+ (* (at centred r c) (at scale r) (at weight c)) (at bias c)))))

; The same without a bias, and without a weight either
(defn centred-norm [x epsilon & weight]
  (let [[n width] (shape x)
        mean (/ (sum x) width)
        centred (tensor [r n c width] (- (at x r c) (at mean r)))
        scale (elementwise (fn [v] (rsqrt (+ (/ v width) epsilon))) (sum (square centred)))]
    (tensor [r n c width]
      (fold (fn [y w] (* y (at w c))) (* (at centred r c) (at scale r)) weight))))

(defn rms-norm [x weight epsilon]
  (let [[n width] (shape x)
        scale (elementwise (fn [v] (rsqrt (+ (/ v width) epsilon))) (sum (square x)))]
    (tensor [r n c width] (* (at x r c) (at scale r) (at weight c)))))

; x [rows heads size], weight [size]: every head is a row
(defn head-norm [x weight epsilon]
  (let [[n heads size] (shape x)]
    (reshape (rms-norm (reshape x [(* n heads) size]) weight epsilon) [n heads size])))

; the same by means, too, and with weights of each head's own, [heads size]
(defn own-norm [x weight epsilon]
  (let [[n heads size] (shape x)
        y (reshape (centred-norm (reshape x [(* n heads) size]) epsilon) [n heads size])]
    (tensor [r n h heads i size] (* (at y r h i) (at weight h i)))))

; ---- activations

(defn relu [x] (max x 0.0))
(defgradient relu [g y x] [(select (> x 0.0) g 0.0)])                      ; 0 at 0

(defn sigmoid [x]
  (elementwise (fn [v] (/ 1.0 (+ 1.0 (exp (- v))))) x))

(defn silu [x]
  (elementwise (fn [v] (/ v (+ 1.0 (exp (- v))))) x))

; The tanh form: "Gaussian Error Linear Units", Hendrycks and Gimpel 2016.
(defn gelu [x]
  (elementwise
    (fn [v]
      (let [v (cast v f32)
            half (* 0.5 v)]
        (math.fma half (tanh (* v (gelu-slope (* v v) 1.0))) half)))
    x))

; What v is multiplied by for the tanh, from its square; thrice: 3.0 for the derivative of that product
(defn gelu-slope [square thrice]
  (math.fma square (: (* thrice 0.044715 0.7978845608028654) f32) (: 0.7978845608028654 f32)))

; "Gaussian Error Linear Units" as it is defined: by the error function
(defn gelu-exact [x]
  (elementwise (fn [v] (* 0.5 v (+ 1.0 (erf (* 0.7071067811865476 v))))) x))

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
  (linear (* (activate (linear x gate)) (linear x up)) down))

; With a SiLU, and with a GELU
(defn swiglu [x gate up down] (gated silu x gate up down))
(defn geglu [x gate up down] (gated gelu x gate up down))

; The same of both products in one, [rows 2*hidden], the gate before what it is times
(defn swiglu-of [both down]
  (let [[n hidden] [(dim both 0) (quot (dim both 1) 2)]
        half (fn [i] (slice both [0 (* i hidden)] [n hidden]))]
    (linear (* (silu (half 0)) (half 1)) down)))

; Between -most and most, or as it is where most is 0
(defn clipped [x most]
  (if (= (* 1.0 most) 0.0) x (max (- most) (min x most))))

; The same by a tanh
(defn capped [x most]
  (if (= (* 1.0 most) 0.0) x (* most (tanh (/ x most)))))

; Over the last dimension.
(defn softmax [x]
  (linalg.softmax {:dimension (- (rank x) 1) :result (type x)} x (tensor.empty {:result (type x)})))

; ---- attention over a cache of keys and values: "Attention Is All You Need", Vaswani et al. 2017

; [sequence which …] as a cache has them whose batch is its first dimension, or its second behind keys and values
(defn in-cache [batch-first sequence which others]
  (concat (if batch-first [sequence which] [which sequence]) others))

; cache [batch 2 heads context size], or [2 batch heads context size]; new [rows heads size] -> the cache with row n at
; its position in its sequence, as keys (which = 0) or values (which = 1); batch-first is true where it is not given
(defn write-rows [cache which new & batch-first]
  (let [batch-first (first (concat batch-first [true]))
        [n heads size] (shape new)
        new (cast new (dtype cache))
        positions (row-positions)
        each (: (/ n (batch)) index)]
    (scf.for {:result (type cache)} (: 0 index) (: n index) (: 1 index) cache
      (region
        (block [(: row index) (: written (type cache))]
          (scf.yield
            (insert (slice new [row 0 0] [nil heads size])
                    written
                    (in-cache batch-first (arith.divui row each) which [0 (cast (at positions row) index) 0])
                    [nil nil heads nil size])))))))

; k and v [rows groups size] are put into cache (kv l), as above -> all keys and all values there, [batch groups context
; size], and the positions of the rows, [batch rows/batch]
(defn cached [k v cache]
  (let [[n groups size] (shape k)
        b (batch)
        first-batch (= (batch-place cache) 0)
        kv (write-state-at-positions
             cache (write-rows (write-rows (read-state cache) 0 k first-batch) 1 v first-batch))
        part (fn [i] (slice kv (in-cache first-batch 0 i [0 0 0]) (in-cache first-batch b nil [groups (dim kv 3) size])))]
    [(part 0) (part 1) (reshape (row-positions) [b (/ n b)])]))

; q [rows heads size], k and v [rows groups size], cache (kv l) as above -> [rows heads*size];
; heads / groups query heads share a key and value head.  Each sees the positions up to its own; (weigh score head t
; position), where one is given, makes something else of a score, such as -inf for what is too far
(defn attend [q k v cache & weigh]
  (let [[n heads size] (shape q)
        [keys values positions] (cached k v cache)
        [b groups context _] (shape keys)
        s (/ n b)
        scale (/ 1.0 (sqrt size))
        weigh (first (concat weigh [plain-score]))
        seen-score (fn [score head t position]
                     (select (<= t position) (weigh (* score scale) head t position) -inf))
        weighted
        (if (= heads groups)
          (let [scores (contract [b s h t] (reshape q [b s heads size]) [b s h d] keys [b h t d])
                seen (tensor [i b j s h heads t context]
                       (seen-score (at scores i j h t) h t (at positions i j)))]
            (contract [b s h d] (softmax seen) [b s h t] values [b h t d]))
          (let [sharing (/ heads groups)
                scores (contract [b s g h t] (reshape q [b s groups sharing size]) [b s g h d] keys [b g t d])
                seen (tensor [i b j s g groups h sharing t context]
                       (seen-score (at scores i j g h t) (+ (* g sharing) h) t (at positions i j)))]
            (contract [b s g h d] (softmax seen) [b s g h t] values [b g t d])))]
    (reshape weighted [n (* heads size)])))

; The logarithm of the last dimension's sum of exponentials.
(defn log-sum-exp [x]
  (let [top (maximum x)
        [a b c d t] (shape x)
        powers (tensor [i a j b k c l d p t] (exp (- (at x i j k l p) (at top i j k l))))]
    (+ top (log (sum powers)))))

; The same where each head has a score of its own, sinks [heads], that takes its share and gives nothing: "Efficient
; Streaming Language Models with Attention Sinks", Xiao et al. 2024, as gpt-oss has them
(defn attend-with-sinks [q k v cache sinks weigh]
  (let [[n heads size] (shape q)
        [keys values positions] (cached k v cache)
        [b groups context _] (shape keys)
        [s sharing scale] [(/ n b) (/ heads groups) (/ 1.0 (sqrt size))]
        scores (contract [b s g h t] (reshape q [b s groups sharing size]) [b s g h d] keys [b g t d])
        head (fn [g h] (+ (* g sharing) h))
        seen (tensor [i b j s g groups h sharing t context]
               (let [position (at positions i j)]
                 (select (<= t position) (weigh (* (at scores i j g h t) scale) (head g h) t position) -inf)))
        kept (log-sum-exp seen)
        y (contract [b s g h d] (softmax seen) [b s g h t] values [b g t d])]
    (reshape
      (tensor [i b j s g groups h sharing d size]
        (/ (at y i j g h d) (+ 1.0 (exp (- (at sinks (head g h)) (at kept i j g h))))))
      [n (* heads size)])))

(defn plain-score [score head t position] score)

; how to weigh the scores of `attend` whose positions see the last `window` ones up to their own only
(defn within [window]
  (if (= window 0)
    plain-score
    (fn [score head t position]
      (select (< (- position t) window) score -inf))))

; the same for layer l of a model of which some layers have a window: those that layer-types, a vector as config.json has
; it, calls so, or where that is empty, those of which `otherwise` is true
(defn sliding? [layer-types l otherwise]
  (let [kind (if (= (count layer-types) 0) "" (nth layer-types l))]
    (cond (= kind "") otherwise
          (= kind "sliding_attention") true
          (= kind "full_attention") false
          :else (error "layer_types are sliding_attention and full_attention here" kind))))
(defn within-if [sliding window]
  (if sliding (within window) plain-score))

; "Train Short, Test Long: Attention with Linear Biases", Press et al. 2022: how to weigh scores that are lowered by a
; slope of the head's own for each position that they look back.  (slope i) of heads that are a power of two is
; 2^(-8 (i + 1) / heads); others have those of the next lower power, and then every second of the next higher one's
(defn lowered-by [slope]
  (fn [score head t position]
    (- score (* (slope (cast (cast head i32) f32)) (cast (- position t) f32)))))

(defn power-below [n] (if (< n 2) 1 (* 2 (power-below (quot n 2)))))
(defn alibi-slope [heads]
  (let [lower (power-below heads)
        power (fn [i count] (exp (* (+ i 1.0) (/ (* -8.0 (log 2.0)) count))))]
    (fn [i]
      (if (= lower heads)
        (power i lower)
        (select (< i (* 1.0 lower)) (power i lower) (power (* 2.0 (- i lower)) (* 2 lower)))))))

; qkv [rows all*size] -> heads `first` to `first + count` of it, [rows count size]
(defn heads-of [qkv size first count]
  (let [n (dim qkv 0)]
    (reshape (slice qkv [0 (* first size)] [n (* count size)]) [n count size])))

; qkv [rows (heads + 2*groups)*size] -> the queries [rows heads size], and keys and values [rows groups size] behind them
(defn split-heads [qkv size heads groups]
  [(heads-of qkv size 0 heads) (heads-of qkv size heads groups) (heads-of qkv size (+ heads groups) groups)])

; qkv [rows 3*width] -> [rows width]; weigh as for `attend`
(defn attention [qkv cache heads & weigh]
  (let [[q k v] (split-heads qkv (/ (dim qkv 1) (* 3 heads)) heads heads)]
    (attend q k v cache (first (concat weigh [plain-score])))))

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
