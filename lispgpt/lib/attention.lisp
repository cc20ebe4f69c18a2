; Attention: over whole texts, which can be differentiated, and over a cache of what came before.
; "Attention Is All You Need", Vaswani et al. 2017.
(require-dialect arith linalg math scf tensor)
(require gradients texts)

; Over the last dimension.
(defn softmax [x]
  (linalg.softmax {:dimension (- (rank x) 1) :result (type x)} x (tensor.empty {:result (type x)})))

; The logarithm of the last dimension's sum of exponentials.
(defn log-sum-exp [x]
  (let [top (maximum x)
        [a b c d t] (shape x)
        powers (tensor [i a j b k c l d p t] (exp (- (at x i j k l p) (at top i j k l))))]
    (+ top (log (sum powers)))))

(defn plain-score [score head t position] score)

; qkv [rows all*size] -> heads `first` to `first + count` of it, [rows count size]
(defn heads-of [qkv size first count]
  (let [n (dim qkv 0)]
    (reshape (slice qkv [0 (* first size)] [n (* count size)]) [n count size])))

; qkv [rows (heads + 2*groups)*size] -> the queries [rows heads size], and keys and values [rows groups size] behind them
(defn split-heads [qkv size heads groups]
  [(heads-of qkv size 0 heads) (heads-of qkv size heads groups) (heads-of qkv size (+ heads groups) groups)])

; An error where q [… heads size], k and v [… groups size], of as many dimensions as `names` says, are not those of one
; attention: heads of queries share those of keys alike, of which there are as many as of values
(defn check-heads [q k v dimensions names]
  (let [given (map (fn [x] (sizes-as-text (shape x))) [q k v])]
    (if (not (= (map rank [q k v]) [dimensions dimensions dimensions]))
      (error (str "queries, keys and values are each " names " here, and " (nth given 0) ", " (nth given 1) " and "
                  (nth given 2) " are given"))
      (let [[heads size groups] [(dim q (- dimensions 2)) (dim q (- dimensions 1)) (dim k (- dimensions 2))]]
        (cond (!= size (dim k (- dimensions 1)))
              (error (str "heads of queries are of " size " numbers here, and those of keys of "
                          (dim k (- dimensions 1))))
              (!= groups (dim v (- dimensions 2)))
              (error (str "there are " groups " heads of keys here, and " (dim v (- dimensions 2)) " of values"))
              (!= 0 (mod heads groups))
              (error (str heads " heads of queries cannot share " groups " of keys and values alike: " heads
                          " is no multiple of " groups)))))))

; The size of a head where the rows of qkv [rows columns] are the queries, keys and values of so many heads, side by side
(defn head-size [qkv heads]
  (when (list? (state-sizes heads))
    (error "heads is a number, and a state is given: (attention qkv (kv l) heads)"))
  (when (!= (rank qkv) 2)
    (error (str "queries, keys and values are [rows 3*width] here, and " (sizes-as-text (shape qkv)) " are given")))
  (when (!= 0 (mod (dim qkv 1) 3))
    (error (str (dim qkv 1) " columns are no queries, keys and values of one width, side by side: " (dim qkv 1)
                " is no multiple of 3")))
  (divided "a width of" (quot (dim qkv 1) 3) heads "heads"))

; ---- whole texts: what is kept for the gradient is one number a row, the logarithm of its sum of exponentials; scores
; are computed again: "FlashAttention-2", Dao 2023.  q is [texts length heads size], k and v are [texts positions groups
; size]; heads / groups query heads share a key and value head.  Products are of numbers as they are stored, in bf16 or
; f32; their sums are in f32.

; q [b s g h d], k [b t g d] -> [b g h s t]
(defn scores-of [q k]
  (contract [b g h s t] q [b s g h d] k [b t g d]))

(defgradient scores-of [gradient y q k]
  (let [g (cast gradient (dtype k))]
    [(contract [b s g h d] g [b g h s t] k [b t g d])
     (contract [b t g d] g [b g h s t] q [b s g h d])]))

; seen [b g h s t], of which lse is the log-sum-exp, v [b t g d] -> [b s g h d] in v's type
(defn attended [seen lse v]
  (cast (contract [b s g h d] (cast (softmax seen) (dtype v)) [b g h s t] v [b t g d])
        (dtype v)))

(defgradient attended [gradient y seen lse v]
  (let [[b g h s t] (shape seen)
        into (cast gradient (dtype v))
        size (dim y 4)
        inner (sum (tensor [b b g g h h s s d size]
                     (* (cast (at into b s g h d) f32) (cast (at y b s g h d) f32))))
        weights (tensor [b b g g h h s s t t] (exp (- (at seen b g h s t) (at lse b g h s))))
        through (contract [b g h s t] into [b s g h d] v [b t g d])]
    [(tensor [b b g g h h s s t t]
       (* (at weights b g h s t) (- (at through b g h s t) (at inner b g h s))))
     nil
     (contract [b t g d] (cast weights (dtype v)) [b g h s t] into [b s g h d])]))

; Softmax over the positions of (weigh score head t position), which is -inf for what a row does not see, times v:
; [texts length heads size] in v's type
(defn weighed-attention [q k v weigh]
  (attention-in-texts q k v (fn [score text head t position] (weigh score head t position))))

; q [texts rows heads size] to k and v [texts positions groups size], which may be of another text, as a decoder's are of
; an encoder's -> [texts rows heads size].  Options, a map:
;   :causal true   a row sees the positions up to its own
;   :mask m        [texts positions], i32 or bool: those of 0 are not seen, such as what fills a text up
;   :bias b        [texts or 1, heads or 1, rows, positions]: is added to the scores, and has a gradient
;   :scale s       in place of 1 / sqrt(size)
(defn attention-to [q k v & options]
  (check-heads q k v 4 "[texts positions heads size]")
  (let [options (first (concat options [{}]))
        one-of (fn [key names] (> (count (filter (fn [k] (= k key)) names)) 0))
        _ (map (fn [key]
                 (when (not (one-of key ["causal" "mask" "bias" "scale"]))
                   (error (str "`attention-to` has no option :" key "; it has :causal, :mask, :bias and :scale"))))
               (keys options))
        root (sqrt (dim q 3))
        [scaled-by causal] [(* root (get options :scale (/ 1.0 root))) (get options :causal false)]
        [mask bias] [(get options :mask nil) (get options :bias nil)]
        has (fn [key] (one-of key (keys options)))
        place (fn [x axis i] (if (= (dim x axis) 1) 0 i))
        weigh (fn [score text head t position]
                (let [score (* scaled-by score)
                      score (if (has "bias")
                              (+ score (at bias (place bias 0 text) (place bias 1 head) position t))
                              score)
                      score (if (has "mask") (select (> (cast (at mask text t) i32) 0) score -1e30) score)]
                  (if causal (select (<= t position) score -1e30) score)))]
    (attention-in-texts q k v weigh)))

(defn attention-in-texts [q k v weigh]
  (check-heads q k v 4 "[texts positions heads size]")
  (let [[b s heads size] (shape q)
        [t groups] [(dim k 1) (dim k 2)]
        sharing (/ heads groups)
        scale (/ 1.0 (sqrt size))
        scores (scores-of (reshape q [b s groups sharing size]) k)
        seen (tensor [b b g groups h sharing s s t t]
               (weigh (* scale (at scores b g h s t)) b (+ (* g sharing) h) t s))]
    (reshape (attended seen (log-sum-exp seen) v) [b s heads (dim v 3)])))

; Each row sees the positions up to its own; (weigh score head t position), where one is given, makes something else of
; a score, as for `attend`
(defn causal-attention [q k v & weigh]
  (let [weigh (first (concat weigh [plain-score]))]
    (weighed-attention q k v (fn [score head t position] (select (<= t position) (weigh score head t position) -inf)))))

; `causal-attention` of qkv [rows 3*width], of texts one after the other -> [rows width]
(defn causal-self-attention [qkv texts heads & weigh]
  (let [size (head-size qkv heads)
        n (dim qkv 0)
        _ (when (!= 0 (mod n texts)) (error (str n " rows are no " texts " texts of one length")))
        [q k v] (map (fn [part] (reshape part [texts (/ n texts) heads size])) (split-heads qkv size heads heads))]
    (reshape (causal-attention q k v (first (concat weigh [plain-score]))) [n (* heads size)])))

; ---- attention over a cache of keys and values: "Attention Is All You Need", Vaswani et al. 2017

; The type that keys and values are kept in where nobody says it, of a model whose weights are of this type: bf16 on GPUs,
; whose steps of long texts take as long as reading these does, for weights of 16 bits or fewer
(defn usual-cache-type [weight-type]
  (if (and (= (capability narrow-caches) 1) (not (= weight-type f32))) bf16 f32))

; [sequence which …] as a cache has them whose batch is its first dimension, or its second behind keys and values
(defn in-cache [batch-first sequence which others]
  (concat (if batch-first [sequence which] [which sequence]) others))

; cache [batch 2 heads context size], or [2 batch heads context size], of numbers or of rows packed in bytes; new [rows heads
; size] likewise -> the cache with row n at its position in its sequence, as keys (which = 0) or values (which = 1);
; batch-first is true where it is not given
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

; An error where `cache` is no part of a state, like (kv l), that has room for rows of so many heads and sizes at each of
; the model's positions: parts is 2 for keys and values.  Whole texts may have nil for a cache
(defn check-cache [cache parts heads size]
  (let [held (state-sizes cache)
        context (configured "context" (if (= (count (or held [])) 5) (nth held 3) "context"))
        wanted (fn [batch-first] (in-cache batch-first "batch" parts [heads context size]))]
    (if (not (or (and (text-rows) (= cache nil)) (= held (wanted true)) (= held (wanted false))))
      (error (str "a cache of " (sizes-as-text (wanted true)) " is wanted here, and "
                  (if (list? held) (str "one of " (sizes-as-text held)) "no state") " is given: "
                  "(state (kv " (sizes-as-text (concat ["layers"] (wanted true))) ")) has one for each layer l, (kv l)")))))

; k and v [rows groups size] of whole texts, as a cache of their rows would give them -> the same three
(defn uncached [k v]
  (let [[texts length] (text-rows)
        by-head (fn [x]
                  (let [[_ groups size] (shape x)
                        x (reshape (stored x) [texts length groups size])]
                    (tensor [b texts g groups t length d size] (at x b t g d))))]
    [(by-head k) (by-head v) (reshape (row-positions) [texts length])]))

; k and v [rows groups size] are put into cache (kv l), as for `attend` -> all keys and all values there, [batch groups context
; size], and the positions of the rows, [batch rows/batch]
(defn cached [k v cache]
  (let [[_ groups size] (shape k)]
    (when (not (or (text-rows) (= (shape k) (shape v))))
      (error (str "keys and values of a cache are alike, and " (sizes-as-text (shape k)) " and "
                  (sizes-as-text (shape v)) " are given")))
    (check-cache cache 2 groups size)
    (if (text-rows) (uncached k v) (in-its-cache k v cache))))
(defn in-its-cache [k v cache]
  (let [[n groups size] (shape k)
        b (batch)
        first-batch (= (batch-place cache) 0)
        kv (write-state-at-positions
             cache (write-rows (write-rows (state-as-stored cache) 0 (packed-rows k cache) first-batch)
                               1 (packed-rows v cache) first-batch))
        sizes (in-cache first-batch b nil [groups (dim kv 3) (dim kv 4)])
        part (fn [i] (unpacked-rows (slice kv (in-cache first-batch 0 i [0 0 0]) sizes) cache))]
    [(part 0) (part 1) (reshape (row-positions) [b (/ n b)])]))

; q [rows heads size], k and v [rows groups size], cache (kv l) of (state (kv [layers batch 2 groups context size])) ->
; [rows heads*size]; heads / groups query heads share a key and value head.  Each sees the positions up to its own; (weigh
; score head t position), where one is given, makes something else of a score, such as -inf for what is too far.  In whole
; texts no cache is needed or looked at, and may be nil
(defn attend [q k v cache & weigh]
  (check-heads q k v 3 "[rows heads size]")
  (let [weigh (first (concat weigh [plain-score]))
        [_ groups size] (shape k)]
    (check-cache cache 2 groups size)
    (if (text-rows) (attend-in-texts q k v weigh) (attend-to-cache q k v cache weigh))))

(defn attend-in-texts [q k v weigh]
  (let [[texts length] (text-rows)
        [q k v] (map (fn [x] (reshape (stored x) [texts length (dim x 1) (dim x 2)])) [q k v])
        y (attention-in-texts q k v
                              (fn [score text head t position]
                                (select (<= t position) (in-document (weigh score head t (cast position i32)) text t position) -inf)))]
    (reshape y [(* texts length) (* (dim y 2) (dim y 3))])))

(defn attend-to-cache [q k v cache weigh]
  (let [[n heads size] (shape q)
        [keys values positions] (cached k v cache)
        [b groups context _] (shape keys)
        s (/ n b)
        scale (/ 1.0 (sqrt size))
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

; `attend` where each head has a score of its own, sinks [heads], that takes its share and gives nothing: "Efficient
; Streaming Language Models with Attention Sinks", Xiao et al. 2024, as gpt-oss has them
(defn attend-with-sinks [q k v cache sinks weigh]
  (check-heads q k v 3 "[rows heads size]")
  (let [[n heads size] (shape q)
        [keys values positions] (cached k v cache)
        [b groups context _] (shape keys)
        [s sharing scale] [(/ n b) (/ heads groups) (/ 1.0 (sqrt size))]
        scores (contract [b s g h t] (reshape q [b s groups sharing size]) [b s g h d] keys [b g t d])
        head (fn [g h] (+ (* g sharing) h))
        seen (tensor [i b j s g groups h sharing t context]
               (let [position (at positions i j)]
                 (select (<= t position)
                         (in-document (weigh (* (at scores i j g h t) scale) (head g h) t position) i t j)
                         -inf)))
        kept (log-sum-exp seen)
        y (contract [b s g h d] (softmax seen) [b s g h t] values [b g t d])]
    (reshape
      (tensor [i b j s g groups h sharing d size]
        (/ (at y i j g h d) (+ 1.0 (exp (- (at sinks (head g h)) (at kept i j g h))))))
      [n (* heads size)])))

; how to weigh the scores of `attend` whose positions see the last `window` ones up to their own only
(defn within [window]
  (if (= window 0)
    plain-score
    (fn [score head t position]
      (select (< (- position t) window) score -inf))))

; whether layer l has a window, of a model of which some layers have one: those that layer-types, a vector as config.json
; has it, calls so, or where that is empty, those of which `otherwise` is true
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

; qkv [rows 3*width], cache (kv l) of (state (kv [layers batch 2 heads context (/ width heads)])) -> [rows width]; weigh
; as for `attend`
(defn attention [qkv cache heads & weigh]
  (let [[q k v] (split-heads (stored qkv) (head-size qkv heads) heads heads)]
    (attend q k v cache (first (concat weigh [plain-score])))))
