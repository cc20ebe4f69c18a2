; Logits made other than the model's, for what a text has already and for what its reader wishes, and reports on tokens.
; runtime/samplers/adjustment.py has the formula; counts is how often each token was generated, with a bit (2^30) for
; those that the prompt has.
(require-dialect arith gpu math memref)
(require sampling)

(def prompt-bit 30)

; logits [batch columns], penalties [batch 3] (repeat, presence, frequency) or more, bias and counts [batch vocab]; where
; repeat is 0 a sequence's logits stay as they are
(kernel adjust [logits penalties bias counts adjusted vocab]
  (let [b (block-id y)
        i (+ (* (block-id x) (capability subgroup-size)) (thread-id x))]
    (when (< i vocab)
      (let [x (memref.load logits b i)
            count (memref.load counts b i)
            repeat (memref.load penalties b (: 0 index))
            generated (arith.andi count (: 0x3fffffff i32))
            repeated (select (> x 0.0) (/ x repeat) (* x repeat))
            x (select (!= count 0) repeated x)
            presence (select (> generated 0) (memref.load penalties b (: 1 index)) (: 0.0 f32))
            frequency (* (memref.load penalties b (: 2 index)) (cast generated f32))
            changed (+ (- (- x presence) frequency) (memref.load bias b i))]
        (memref.store (select (= repeat 0.0) (memref.load logits b i) changed) adjusted b i)))
    (when (and (>= i vocab) (< i (dim logits 1)))
      (memref.store (memref.load logits b i) adjusted b i))))

; -> [batch columns]; what is not a token stays as it is
(defn adjusted-logits [logits penalties bias counts vocab]
  (let [lanes (capability subgroup-size)]
    (launch adjust [(blocks-of lanes (dim logits 1)) (dim logits 0)] [lanes]
      logits penalties bias counts (output (type logits)) vocab)))

(kernel count-tokens [next counts vocab]
  (let [b (block-id x)
        token (memref.load next b)]
    (when (and (= (thread-id x) 0) (arith.cmpi {:predicate "ult"} token (: vocab i32)))
      (let [i (cast token index)]
        (memref.store (+ (memref.load counts b i) (: 1 i32)) counts b i)))))

; counts with one more of each sequence's next
(defn counted [next counts]
  (launch count-tokens [(dim counts 0)] [(capability subgroup-size)] next (in-place counts) (dim counts 1)))

; For each chunk: the rank of its largest logit, and the sum of e^(x - that one)
(kernel sum-chunks [logits tops sums vocab]
  (let [b (block-id y)
        chunk (+ (* (block-id x) chunks-of-a-block) (subgroup))]
    (when (< chunk (dim tops 1))
      (let [values (quad logits b (start-of chunk) vocab)
            rank (across-lanes max (fold max lowest-rank (map rank-of values)))
            top (value-of (max rank (+ lowest-rank 1)))
            sum (across-lanes + (fold + 0.0 (map (fn [x] (weight x top 1.4426950408889634)) values)))]
        (when (= (lane) 0)
          (memref.store rank tops b chunk)
          (memref.store sum sums b chunk))))))

; The largest of a sequence's logits, and the sum of e^(x - that one) over all, by its block
(defn total-of-chunks [tops sums b threads]
  (let [subgroups (/ threads (lanes))
        [_ rank]
        (loop {:result [index i32]} [c (thread-id x) rank lowest-rank]
          :while (< c (dim tops 1))
          :do [(+ c threads) (max rank (memref.load tops b c))])
        [rank] (across-block [[max lowest-rank rank (shared [subgroups] i32)]])
        top (value-of rank)
        [_ sum]
        (loop {:result [index f32]} [c (thread-id x) sum (: 0.0 f32)]
          :while (< c (dim tops 1))
          :do [(+ c threads)
               (+ sum (* (weight (value-of (memref.load tops b c)) top 1.4426950408889634) (memref.load sums b c)))])
        [sum] (across-block [[+ 0.0 sum (shared [subgroups] f32)]])]
    [top sum]))

(defn log-probability [x top sum] (- (- x top) (math.log sum)))

; the bits of the logarithm of a token's probability
(defn log-probability-of [token logits b vocab top sum]
  (let [known (arith.cmpi {:predicate "ult"} token (: vocab i32))
        x (memref.load logits b (cast (select known token (: 0 i32)) index))]
    (bits-of (log-probability x top sum))))

(kernel report-tokens [logits tops sums next best report vocab threads]
  (let [b (block-id x)
        [top sum] (total-of-chunks tops sums b threads)]
    (when (= (thread-id x) 0)
      (let [token (memref.load next b)]
        (memref.store token report b (: 0 index))
        (map (fn [word] (memref.store (memref.load best b word) report b word)) (range 1 report-words))
        (memref.store (log-probability-of token logits b vocab top sum) report b (: report-words index))))))

(defn threads-for [chunks] (min (capability max-threads) (* (blocks-of (lanes) chunks) (lanes))))

; -> `tops` and `sums` of all chunks, see `sum-chunks`
(defn sums-of-chunks [logits vocab]
  (let [batch (dim logits 0)
        chunks (blocks-of (chunk-size) vocab)
        of (fn [T] (output (tensor-type [batch chunks] T)))]
    (launch sum-chunks [(blocks-of chunks-of-a-block chunks) batch] [(* chunks-of-a-block (lanes))]
      logits (of i32) (of f32) vocab)))

; logits [batch columns], next [batch], best [batch 3] -> [batch 4]: each token in the place of the best one, and the bits
; of its logarithm of probability
(defn token-report [logits next best vocab]
  (let [batch (dim logits 0)
        [tops sums] (sums-of-chunks logits vocab)
        threads (threads-for (dim tops 1))]
    (launch report-tokens [batch] [threads]
      logits tops sums next best (output (tensor-type [batch (+ report-words 1)] i32)) vocab threads)))
