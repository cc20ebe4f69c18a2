; Choosing tokens on the device, each kernel spread over chunks of the vocabulary and a last one over the chunks.
;
;   (best-token logits vocab) -> [batch] of i32: the most probable, the lowest id of equals
;   (best-report logits vocab) -> these and how clearly they win, [batch 3] of i32 (see core.lisp)
;   (best-and-report logits vocab) -> both
;   (draw-token logits settings positions vocab) -> [batch] of i32: drawn at random
;
; Both give -1 where the best logit is no finite number; columns of logits [batch columns] from vocab on are padding.
;
; A draw is from softmax(logits / temperature), cut to the top-k largest, then to the smallest set of most
; probable tokens that reaches top-p of what is left, then to those at least min-p times as probable as the most probable
; one; among equals, lower ids count as larger.
; settings [batch 8] of i32, a row for each sequence (runtime/samplers/weighted.py makes them):
;   0  log2(e) / temperature, an f32's bits     1  top-k, or a number of at least vocab
;   2  top-p, an f32's bits, or infinity        3  4  the seed's low and high words
;   5  the sequence's stream                    6  the number of this draw, less the sequence's position
;   7  min-p, an f32's bits
;
; Token i is drawn with probability w_i / (w_1 + w_2 + …) as the one whose exponential clock of that rate rings first: it
; has the largest w_i / e_i, for e_i = -ln(1 - u_i) with u_i uniform, from a counter-based generator.  So the choice does
; not depend on any order of evaluation.  If the winner is not in the set that these cuts leave, neither is any less
; probable token, and the winner among the more probable ones is the next to look at; mostly the first one is in it.
(require-dialect arith gpu math memref scf vector)
(require kernels)
(require chunks)

; ---- the choice among the chunks, by one block for each sequence

(defn one-if [condition] (cast (cast condition i8) i32))

; Each part [combine neutral x partial] as the block's: partial has an element of shared memory for each subgroup.
(defn across-block [parts]
  (let [mine (map (fn [part] (across-lanes (nth part 0) (nth part 2))) parts)
        subgroups (dim (nth (first parts) 3) 0)
        used (< (lane) subgroups)]
    (gpu.barrier)
    (when (= (lane) 0)
      (map (fn [x part] (memref.store x (nth part 3) (subgroup))) mine parts))
    (gpu.barrier)
    (map (fn [part]
           (let [[combine neutral _ partial] part]
             (across-lanes combine (select used (memref.load partial (select used (lane) (: 0 index))) neutral))))
         parts)))

; The largest rank that at least k of what is counted reach, or one that exactly k reach; at least k reach low.
(defn threshold [at-least k low high]
  (let [[low _]
        (loop {:result [i32 i32]} [low low beyond (+ high 1)]
          :while (arith.cmpi {:predicate "ugt"} (- beyond low) 1)
          :do (let [middle (+ low (arith.shrui (- beyond low) (: 1 i32)))
                    count (at-least middle)]
                [(select (>= count k) middle low)
                 (select (> count k) beyond (select (= count k) (+ middle 1) middle))]))]
    low))

; [a c] carried over the quads of all chunks in which something reaches a rank, by (next values start a c); a subgroup
; looks at `together` chunks at once.
(defn sweep [row rank together types a c next]
  (let [[logits _ _ b vocab ranks subgroups] row
        chunks (dim ranks 0)
        [_ a c]
        (loop {:result (cons index types)} [chunk (subgroup) a a c c]
          :while (< chunk chunks)
          :do (let [group (map (fn [i] (+ chunk (* i subgroups))) (range together))
                    open (map (fn [own]
                                (and (< own chunks)
                                     (>= (memref.load ranks (select (< own chunks) own (: 0 index))) rank)))
                              group)
                    [a c] (if {:result types} (fold (fn [any one] (or any one)) (first open) (rest open))
                            (let [starts (map (fn [own one] (select one (start-of own) (: (dim logits 1) i32)))
                                              group open)
                                  quads (map (fn [start] (quad logits b start vocab)) starts)]
                              (fold (fn [found i] (let [[a c] found] (next (nth quads i) (nth starts i) a c)))
                                    [a c] (range together)))
                            [a c])]
                [(+ chunk (* together subgroups)) a c]))]
    [a c]))

; Whether element j of a quad of numbers is more probable than what has that rank and id.
(defn above [x start j rank id]
  (> (rank-of-number x) (select (< (+ start j) id) (- rank 1) rank)))

; [count mass] of the tokens that are more probable than one.
(defn tally [row rank id top scale numbers reals]
  (let [next (fn [values start count mass]
               (fold (fn [found j]
                       (let [[count mass] found
                             more (above (nth values j) start j rank id)]
                         [(+ count (one-if more)) (+ mass (weight (select more (nth values j) -inf) top scale))]))
                     [count mass] (range each)))
        [count mass] (sweep row rank 4 [i32 f32] (: 0 i32) (: 0.0 f32) next)]
    (across-block [[+ 0 count numbers] [+ 0.0 mass reals]])))

; [rank id] of the winner among the tokens that are more probable than one.
(defn winner-above [row rank id top numbers reals]
  (let [[logits settings positions b _ _ _] row
        next (fn [values start best winner]
               (let [won (races values start top settings positions b)
                     open (map (fn [x race j] (select (above x start j rank id) race -1.0)) values won (range each))]
                 (best-of open start best winner)))
        [best winner] (sweep row rank 1 [f32 i32] (: -1.0 f32) (: nobody i32) next)
        [_ winner] (first-winner best winner -1.0 reals numbers)]
    [(rank-of (memref.load logits b (cast winner index))) winner]))

; Every thread's [best id] as the block's, of equals the lowest id.
(defn first-winner [best id neutral partial numbers]
  (let [[all] (across-block [[max neutral best partial]])
        [winner] (across-block [[min nobody (select (= best all) id nobody) numbers]])]
    [all winner]))

(defn is-number [rank]
  (and (> rank lowest-rank) (< rank infinite-rank)))

; [token, how many are as good, how far the next one below is in sizes of the chunks' best, an f32's bits] of a sequence
(defn best-of-chunks [bests b threads]
  (let [chunks (dim bests 1)
        part (fn [] (shared [(/ threads (lanes))] i32))
        size-of (fn [rank] (let [size (arith.andi (flip rank) 0x7fffffff)] (select (< size infinite-rank) size 0)))
        none [lowest-rank nobody lowest-rank 0]
        mine (map (fn [i]
                    (let [c (+ (thread-id x) (* i threads))
                          there (< c chunks)]
                      (map (fn [word none] (select there word none))
                           (load-best bests b (select there c (: 0 index))) none)))
                  (range (blocks-of threads chunks)))
        [rank id below same] (fold joined-best (first mine) (rest mine))
        [best size] (across-block [[max lowest-rank rank (part)]
                                   [max 0 (fold max (: 0 i32) (map (fn [one] (size-of (first one))) mine)) (part)]])
        wins (= rank best)
        [id below same] (across-block [[min nobody (select wins id nobody) (part)]
                                       [max lowest-rank (select wins below rank) (part)]
                                       [+ 0 (select wins same 0) (part)]])]
    [(select (is-number best) id -1) same (bits-of (/ (- (value-of best) (value-of below)) (real-of size)))]))

(defn store-report [words report b]
  (map (fn [place word] (memref.store word report b (: place index))) (range report-words) words))

(kernel report-top [bests report threads]
  (let [b (block-id x)
        words (best-of-chunks bests b threads)]
    (when (= (thread-id x) 0)
      (store-report words report b))))

(kernel choose-top [bests token report threads]
  {:means "largest"}
  (let [b (block-id x)
        words (best-of-chunks bests b threads)]
    (when (= (thread-id x) 0)
      (memref.store (first words) token b)
      (store-report words report b))))

(kernel choose-token [logits settings positions tops sums races-won winners token vocab threads]
  {:means "drawn"}
  (let [b (block-id x)
        chunks (dim tops 1)
        subgroups (/ threads (lanes))
        reals (shared [subgroups] f32)
        more-reals (shared [subgroups] f32)
        numbers (shared [subgroups] i32)
        ranks (shared [chunks] i32)
        scale (real-of (memref.load settings b 0))
        k (memref.load settings b 1)
        p (real-of (memref.load settings b 2))
        least (real-of (memref.load settings b 7))
        own-chunks (map (fn [i] (+ (thread-id x) (* i threads))) (range (blocks-of threads chunks)))
        mine (map (fn [c]                      ; of each of them: [rank sum race winner]
                    (let [at (select (< c chunks) c (: 0 index))
                          rank (select (< c chunks) (memref.load tops b at) lowest-rank)]
                      (when (< c chunks)
                        (memref.store rank ranks c))
                      [rank (memref.load sums b at) (memref.load races-won b at) (memref.load winners b at)]))
                  own-chunks)
        [high] (across-block [[max lowest-rank (fold max lowest-rank (map first mine)) numbers]])
        top (value-of high)
        shares (map (fn [own] (weight (value-of (first own)) top scale)) mine)
        total (fold + 0.0 (map (fn [own share] (* share (nth own 1))) mine shares))
        [best id] (fold (fn [found i]
                          (let [[best id] found
                                [_ _ race winner] (nth mine i)
                                race (* (nth shares i) race)]
                            [(max race best) (select (> race best) winner id)]))
                        [(: -1.0 f32) (: nobody i32)] (range (count mine)))
        [total all] (across-block [[+ 0.0 total reals] [max -1.0 best more-reals]])
        [id] (across-block [[min nobody (select (= best all) id nobody) numbers]])
        row [logits settings positions b vocab ranks subgroups]
        chosen (if {:result i32} (and (is-number high) (or (or (< k vocab) (< p 1.0)) (> least 0.0)))
                 (chosen-within row k p least high total id scale numbers reals)
                 (select (is-number high) id -1))]
    (when (= (thread-id x) 0)
      (memref.store chosen token b))))

(def most-held 16)
(defn joined-chunks [chunks] (blocks-of (* most-held (lanes)) chunks))

; The k-th of the largest ranks of so many chunks together, which is at most the k-th of all: by one subgroup, for which
; no other has to wait at each step of the search.
(defn largest-in-order [ranks k high numbers]
  (gpu.barrier)
  (when (= (subgroup) 0)
    (let [chunks (dim ranks 0)
          together (joined-chunks chunks)
          place (fn [i] (+ (lane) (* i (lanes))))
          rank-at (fn [c] (select (< c chunks) (memref.load ranks (select (< c chunks) c (: 0 index))) lowest-rank))
          firsts (map (fn [i] (* i together)) (range (blocks-of (* together (lanes)) chunks)))
          seen (map (fn [i] (fold max lowest-rank (map (fn [j] (rank-at (place (+ i j)))) (range together)))) firsts)
          real (map (fn [rank i] (select (< (place i) chunks) rank nobody)) seen firsts)
          low (across-lanes min (fold min nobody real))
          reach (fn [rank] (across-lanes + (fold + 0 (map (fn [one] (one-if (>= one rank))) seen))))
          found (threshold reach k low high)]
      (when (= (lane) 0)
        (memref.store found numbers (: 0 index)))))
  (gpu.barrier)
  (memref.load numbers (: 0 index)))

; The first winner in the set that top-k, top-p and min-p leave; id is the first of all.
(defn chosen-within [row k p least high total id scale numbers reals]
  (let [[logits _ _ b vocab ranks _] row
        top (value-of high)
        count-all (fn [rank] (first (tally row rank (: 0 i32) top scale numbers reals)))
        few (and (< k vocab) (<= k (quot (dim ranks 0) (joined-chunks (dim ranks 0)))))
        low (if {:result i32} few
              (largest-in-order ranks k high numbers)
              (: lowest-rank i32))
        mass-of-k (fn []
                    (let [edge (threshold (fn [rank] (count-all (- rank 1))) k low high)
                          [count mass] (tally row edge (: 0 i32) top scale numbers reals)]
                      (+ mass (* (cast (- k count) f32) (weight (value-of edge) top scale)))))
        both (and (< k vocab) (< p 1.0))
        [rank id] (if {:result [i32 i32]} few
                    (winner-above row (- low 1) (: 0 i32) top numbers reals)
                    [(rank-of (memref.load logits b (cast id index))) id])
        [_ id] (loop {:result [i32 i32]} [rank rank id id]
                 :while (let [[count mass] (tally row rank id top scale numbers reals)
                              own (weight (value-of rank) top scale)
                              kept (and (< count k) (>= own least))
                              ; where both cut, the top-k have this mass at least: mostly enough to know
                              unclear (>= mass (* p (+ mass own)))
                              total (if {:result f32} (and both (and kept unclear)) (mass-of-k) total)]
                          (not (and kept (< mass (* p total)))))
                 :do (winner-above row rank id top numbers reals))]
    id))

; ---- on tensors

(defn best-token [logits vocab]
  (let [report (best-report logits vocab)]
    (tensor [r (dim logits 0)] (at report r 0))))

(defn best-report [logits vocab]
  (let [[batch threads bests] (bests-of-chunks logits vocab)]
    (launch report-top [batch] [threads] bests (output (tensor-type [batch report-words] i32)) threads)))

(defn best-and-report [logits vocab]
  (let [[batch threads bests] (bests-of-chunks logits vocab)]
    (launch choose-top [batch] [threads]
      bests (output (tensor-type [batch] i32)) (output (tensor-type [batch report-words] i32)) threads)))

(defn bests-of-chunks [logits vocab]
  (let [batch (dim logits 0)
        chunks (blocks-of (chunk-size) vocab)]
    [batch
     (min 256 (capability max-threads) (* (blocks-of (lanes) chunks) (lanes)))
     (launch top-chunks [(blocks-of chunks-of-a-block chunks) batch] [(* chunks-of-a-block (lanes))]
       logits (output (tensor-type [batch chunks best-words] i32)) vocab)]))

(defn draw-token [logits settings positions vocab]
  (let [batch (dim logits 0)
        chunks (blocks-of (chunk-size) vocab)
        threads (min (capability max-threads) (* chunks (lanes)))
        of (fn [T] (output (tensor-type [batch chunks] T)))
        [tops sums races-won winners]
        (launch race-chunks [(blocks-of chunks-of-a-block chunks) batch] [(* chunks-of-a-block (lanes))]
          logits settings positions (of i32) (of f32) (of f32) (of i32) vocab)]
    (launch choose-token [batch] [threads]
      logits settings positions tops sums races-won winners (output (tensor-type [batch] i32)) vocab threads)))
