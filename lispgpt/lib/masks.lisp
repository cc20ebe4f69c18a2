; Logits of the tokens that a text may go on with, and reports on those that each text of a batch takes in its own way.
; A mask has a bit for each token, the lowest of each word first: whether it may come.
(require-dialect arith gpu math memref)
(require sampling)
(require penalties)

; logits [batch columns], mask [batch words]
(kernel let-through [logits mask masked vocab]
  (let [b (block-id y)
        i (+ (* (block-id x) (capability subgroup-size)) (thread-id x))]
    (when (< i vocab)
      (let [word (memref.load mask b (quot i 32))
            bit (arith.andi (arith.shrui word (arith.andi (cast i i32) (: 31 i32))) (: 1 i32))]
        (memref.store (select (= bit 0) -inf (memref.load logits b i)) masked b i)))
    (when (and (>= i vocab) (< i (dim logits 1)))
      (memref.store (memref.load logits b i) masked b i))))

; -> [batch columns]; what is not a token stays as it is
(defn masked-logits [logits mask vocab]
  (let [lanes (capability subgroup-size)]
    (launch let-through [(blocks-of lanes (dim logits 1)) (dim logits 0)] [lanes]
      logits mask (output (type logits)) vocab)))

(def most-tops 20)
(def closed -2147483648)                       ; below the rank of any logit

; The largest of what chunks have left, and the first chunk that has it: ranks [chunks] in shared memory, by the block
(defn best-left [ranks threads numbers]
  (let [chunks (dim ranks 0)
        own (map (fn [i] (+ (thread-id x) (* i threads))) (range (blocks-of threads chunks)))
        seen (map (fn [c] (select (< c chunks) (memref.load ranks (select (< c chunks) c (: 0 index))) (: closed i32)))
                  own)
        [rank] (across-block [[max closed (fold max (first seen) (rest seen)) numbers]])
        places (map (fn [c found] (select (= found rank) (cast c i32) (: nobody i32))) own seen)
        [chunk] (across-block [[min nobody (fold min (first places) (rest places)) numbers]])]
    [rank chunk]))

; Of a chunk whose largest logit that is left has that rank: the first token that has it, and the largest rank that is
; left behind it.  Left is what comes behind a rank and a token there.
(defn next-in-chunk [logits b chunk vocab rank before before-token]
  (let [start (+ (* chunk (chunk-size)) (* (cast (lane) i32) each))
        ranks (map rank-of (quad logits b start vocab))
        tokens (map (fn [j] (+ start j)) (range each))
        behind (fn [other token rank before] (or (< other rank) (and (= other rank) (> token before))))
        firsts (map (fn [other token]
                      (select (and (= other rank) (behind other token before before-token)) token (: nobody i32)))
                    ranks tokens)
        token (across-lanes min (fold min (first firsts) (rest firsts)))
        rests (map (fn [other own] (select (behind other own rank token) other (: closed i32))) ranks tokens)]
    [token (across-lanes max (fold max (first rests) (rest rests)))]))

; The most probable tokens of a sequence, the lowest of equals first, each with the bits of its logarithm of probability:
; as many as it wishes, and zeros behind them
(defn tell-tops [logits tops b wanted top sum told vocab threads]
  (let [chunks (dim tops 1)
        ranks (shared [chunks] i32)
        numbers (shared [(/ threads (lanes))] i32)]
    (map (fn [i]
           (let [c (+ (thread-id x) (* i threads))]
             (when (< c chunks)
               (memref.store (memref.load tops b c) ranks c))))
         (range (blocks-of threads chunks)))
    (map (fn [i]
           (let [word (+ (thread-id x) (* i threads))]
             (when (< word (dim told 1))
               (memref.store (: 0 i32) told b word))))
         (range (blocks-of threads (dim told 1))))
    (gpu.barrier)
    (loop {:result [i32 i32 i32]} [number (: 0 i32) before (: nobody i32) before-token (: -1 i32)]
      :while (< number wanted)
      :do (let [[rank chunk] (best-left ranks threads numbers)
                [token left] (next-in-chunk logits b chunk vocab rank before before-token)]
            (when (= (thread-id x) 0)
              (memref.store left ranks (cast chunk index))
              (memref.store token told b (cast (* number 2) index))
              (memref.store (bits-of (log-probability (value-of rank) top sum)) told b
                (cast (+ (* number 2) 1) index)))
            (gpu.barrier)
            [(+ number 1) rank token]))))

(kernel report-steered [logits tops sums next best sampling wishes report told vocab threads]
  (let [b (block-id x)
        [top sum] (total-of-chunks tops sums b threads)
        wanted (min (arith.fptosi {:result i32} (memref.load wishes b (: 3 index))) most-tops)
        greedy (= (memref.load sampling b (: 1 index)) 1)]
    (when (= (thread-id x) 0)
      (let [token (memref.load next b)]
        (store-report [token
                       (select greedy (memref.load best b (: 1 index)) (: 1 i32))
                       (select greedy (memref.load best b (: 2 index)) (: 0x7f7fffff i32))]
          report b)
        (memref.store (log-probability-of token logits b vocab top sum) report b (: report-words index))))
    (tell-tops logits tops b wanted top sum told vocab threads)))

; logits [batch columns], next [batch], best [batch 3], sampling [batch 8], wishes [batch 4], of which the last is how many
; of the most probable tokens are told -> [batch 4], [batch 40]: each token in the place of the best one, how clearly it
; wins where it is the best (one that was drawn does), and the bits of its logarithm of probability in these logits; and
; the most probable ones, each with the bits of its own
(defn steered-report [logits next best sampling wishes vocab]
  (let [batch (dim logits 0)
        [tops sums] (sums-of-chunks logits vocab)
        threads (min 256 (threads-for (dim tops 1)))
        of (fn [words] (output (tensor-type [batch words] i32)))]
    (launch report-steered [batch] [threads]
      logits tops sums next best sampling wishes (of (+ report-words 1)) (of (* 2 most-tops)) vocab threads)))
