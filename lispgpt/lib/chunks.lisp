; Rows of logits in chunks, one for each subgroup, which finds its chunk's most probable token and the winner of its race
; (see sampling.lisp): orders of reals as whole numbers, exponential clocks, and the kernels over all chunks.
(require-dialect arith gpu math memref scf vector)
(require kernels)
(require random)

(def settings-words 8)
(def each 4)                                   ; neighbours that a lane takes, which share one number of the generator

(defn lanes [] (capability subgroup-size))
(defn blocks-of [size n] (/ (- (+ n size -1) (mod (- n 1) size)) size))

; ---- numbers

(defn bits-of [x] (arith.bitcast {:result i32} x))
(defn real-of [bits] (arith.bitcast {:result f32} bits))

; Integers in the order of the reals: both zeros equal, a NaN above all (rank-of-number's are anywhere).
; flip is its own inverse.
(defn flip [bits]
  (arith.xori bits (arith.andi (arith.shrsi bits 31) 0x7fffffff)))
(defn rank-of-number [x] (flip (bits-of (+ x 0.0))))
(defn rank-of [x] (select (!= x x) 0x7fffffff (rank-of-number x)))
(defn value-of [rank] (real-of (flip rank)))

(def infinite-rank 0x7f800000)
(def nobody 0x7fffffff)
(def lowest-rank -2139095041)                  ; of -infinity

; -ln(1 - u) for u = (word + 1/2) / 2^32, to a few units in the last place, small ones too: 1 - u = m 2^n with m near 1,
; and ln m = 2 artanh((m - 1) / (m + 1))
(defn exponential [word]
  (let [u (* (+ (arith.uitofp {:result f32} word) 0.5) 2.3283064365386963e-10)
        bits (bits-of (max (- 1.0 u) 1.1641532182693481e-10))
        n (arith.shrsi (- bits 0x3f3504f3) 23)
        t (select (= n 0) (- u) (- (real-of (- bits (arith.shli n 23))) 1.0))
        s (/ t (+ t 2.0))
        z (* s s)
        series (fold (fn [sum odd] (+ (* sum z) (/ 1.0 odd))) (/ 1.0 9) [7 5 3 1])]
    (- (+ (* (cast n f32) 0.6931471805599453) (* (* s 2.0) series)))))

; ---- a row of logits, in chunks of neighbours that one subgroup takes

(def chunks-of-a-block 4)
(defn chunk-size [] (* each (lanes)))

; Elements start … start + 3 of a row, for this lane of a chunk; -infinity for what lies outside the vocabulary.
(defn quad [logits b start vocab]
  (let [columns (dim logits 1)
        inside (fn [i] (cast (select (< i columns) i (: 0 i32)) index))
        values (if (= (mod columns each) 0)
                 (let [four (vector.load {:result vector<4xf32> :alignment (: 16 i64)} logits b (inside start))]
                   (map (fn [place] (vector.extract {:static_position place} four)) word-places))
                 (map (fn [j] (memref.load logits b (inside (+ start j)))) (range each)))]
    (map (fn [x j] (select (< (+ start j) vocab) x -inf)) values (range each))))

(defn lane [] (arith.remui (thread-id x) (: (lanes) index)))
(defn subgroup [] (arith.divui (thread-id x) (: (lanes) index)))
(defn start-of [chunk] (+ (* (cast chunk i32) (chunk-size)) (* (cast (lane) i32) each)))

; e^((x - top) / temperature) for a finite top; 0 where x is -infinity
(defn weight [x top scale] (math.exp2 (* (- x top) scale)))

; When each of a quad's clocks rings: the larger, the sooner.
(defn races [values start top settings positions b]
  (let [word (fn [i] (memref.load settings b i))
        draw (+ (memref.load positions b) (word 6))
        counter [(arith.shrui start (: 2 i32)) draw (word 5) (: 0 i32)]
        noise (map exponential (philox counter [(word 3) (word 4)]))]
    (map (fn [x e] (/ (weight x top (real-of (word 0))) e)) values noise)))

; [best id] of a quad's values and those before them; the first of equals
(defn best-of [values start best id]
  (fold (fn [found j]
          (let [[best id] found
                x (nth values j)
                better (> x best)]
            [(select better x best) (select better (+ start j) id)]))
        [best id] (range each)))

; Every lane's [best id] as the subgroup's, of equals the lowest id.
(defn join-lanes [best id]
  (let [all (across-lanes max best)]
    [all (across-lanes min (select (= best all) id nobody))]))

; What is known of the best of some logits: [rank id below equals], its rank, the lowest id that has it, the rank of the
; next one below and how many have the best.
(defn single-best [rank id]
  [rank id (: lowest-rank i32) (: 1 i32)])

(defn joined-best [a b]
  (let [[rank id below equals] a
        [other other-id other-below other-equals] b
        best (max rank other)
        mine (= rank best)
        theirs (= other best)]
    [best (min (select mine id nobody) (select theirs other-id nobody))
     (max (select mine below rank) (select theirs other-below other))
     (+ (select mine equals 0) (select theirs other-equals 0))]))

; Every lane's as the subgroup's.
(defn join-best [found]
  (let [[rank id below equals] found
        best (across-lanes max rank)
        mine (= rank best)]
    [best (across-lanes min (select mine id nobody))
     (across-lanes max (select mine below rank))
     (across-lanes + (select mine equals 0))]))

(def best-words 4)
(def word-places [array<i64: 0> array<i64: 1> array<i64: 2> array<i64: 3>])

(defn load-best [bests b chunk]
  (let [words (vector.load {:result vector<4xi32> :alignment (: 16 i64)} bests b chunk (: 0 index))]
    (map (fn [place] (vector.extract {:static_position place} words)) word-places)))

(defn store-best [found bests b chunk]
  (let [[rank id below equals] found]
    (vector.store {:alignment (: 16 i64)} (vector.from_elements {:result vector<4xi32>} rank id below equals)
      bests b chunk (: 0 index))))

; For each chunk: the best of its logits.
(kernel top-chunks [logits bests vocab]
  {:means "largest of chunks"}
  (let [b (block-id y)
        chunk (+ (* (block-id x) chunks-of-a-block) (subgroup))]
    (when (< chunk (dim bests 1))
      (let [start (start-of chunk)
            ranks (map rank-of (quad logits b start vocab))
            singles (map (fn [rank j] (single-best rank (+ start j))) ranks (range each))
            found (join-best (fold joined-best (first singles) (rest singles)))]
        (when (= (lane) 0)
          (store-best found bests b chunk))))))

; For each chunk: the rank of its largest logit, the sum of its weights beside that, and the best race and its id.
(kernel race-chunks [logits settings positions tops sums races-won winners vocab]
  {:means "races of chunks"}
  (let [b (block-id y)
        chunk (+ (* (block-id x) chunks-of-a-block) (subgroup))]
    (when (< chunk (dim tops 1))
      (let [start (start-of chunk)
            values (quad logits b start vocab)
            rank (across-lanes max (fold max lowest-rank (map rank-of values)))
            top (value-of (max rank (+ lowest-rank 1)))    ; finite, if need be the lowest number
            scale (real-of (memref.load settings b 0))
            sum (across-lanes + (fold + 0.0 (map (fn [x] (weight x top scale)) values)))
            [best id] (best-of (races values start top settings positions b) start (: -1.0 f32) (: nobody i32))
            [best id] (join-lanes best id)]
        (when (= (lane) 0)
          (memref.store rank tops b chunk)
          (memref.store sum sums b chunk)
          (memref.store best races-won b chunk)
          (memref.store id winners b chunk))))))
