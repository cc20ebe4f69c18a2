; Attention of many rows of queries: a block goes along the keys that its rows see, tile by tile, and no score reaches
; memory.  Dao, "FlashAttention-2", 2023.  F32 operands are split into BF16 parts on the way.
(require "softmax.lisp")

; A shape is [rows members each lined]: the rows of a block, of which each subgroup has sixteen, how many subgroups share
; a row's keys, how many of a tile each has, and whether queries lie in lines of shared memory.  A tiling is
; [rows members keys slots kept resident lined]: the keys of a tile, how many tiles shared memory holds (0: none is on its
; way while another is multiplied), whether queries stay in registers, and how many blocks share a core.
(def shapes (map (fn [shape] (concat shape [false]))
                 [[128 1 64] [64 1 64] [64 2 64] [64 2 32] [64 2 16] [64 1 32] [64 1 16] [32 2 64] [32 4 32] [32 2 32]
                  [32 2 16] [32 1 32] [16 2 32] [16 2 16] [16 1 32]]))

; Shapes where warpgroups multiply keys and values that lie in lines, as bulk copies bring them: each has 64 rows.
(def wide-shapes [[128 1 128 false] [128 1 64 false] [128 1 32 false] [64 1 128 false] [64 1 64 false] [64 1 32 false]
                  [64 2 64 false] [64 2 32 false] [128 1 64 true] [64 1 128 true] [64 1 64 true] [64 2 64 true]])

; Of these that which an H200 takes least time with (2026): rows share keys where there are blocks of them for all cores,
; and keys are shared out where there are not.
(defn fastest [a]
  (let [long (nth (tile.operand-parts a) 1)                 ; keys that take two BF16 parts
        few (< (* (tile.heads a) (ceil-div (tile.queries a) 64)) (* 2 (capability cores)))
        many (>= (* 8 (tile.heads a) (ceil-div (tile.queries a) 128)) (* 7 (capability cores)))]
    (cond (> (tile.depth a) 128) [64 2 64 true]
          (and (> (tile.depth a) 64) (> long 1)) [64 2 32 false]
          (> (tile.depth a) 64) (if many [128 1 64 true] [64 1 64 true])
          (and few (> (tile.queries a) 128)) [64 2 64 true]
          (and few (= long 1) (> (tile.queries a) 64)) [64 1 128 true]
          true [64 1 64 true])))

(defn words [numbers] (ceil-div (* 16 numbers) (capability subgroup-size)))

(defn tiling-of [a [rows members each lined]]
  (let [parts (nth (tile.operand-parts a) 1)
        keys (* each members)
        threads (* (quot rows 16) members (capability subgroup-size))
        most-words (if (tile.makes-room? a) 168 104)
        sums (+ (words (tile.width a)) (words each))
        kept (and (not lined) (<= (+ sums (tile.query-words a)) most-words))
        shared (tile.shares-queries a)
        lined (or lined (and (not kept) (or (<= (words (tile.width a)) 112) (not (tile.makes-room? a)))
                             (<= (tile.block-bytes shared rows keys 1 members) (tile.room a))))
        a (if lined shared a)
        held (if kept (+ sums (tile.query-words a)) sums)
        way (ceil-div (* keys (+ (tile.depth a) (tile.width a)) parts) (* 2 threads))
        fits (fn [slots] (<= (tile.block-bytes a rows keys slots members) (tile.room a)))
        slots (cond (and (tile.pieces? a keys) (fits (if (tile.wide? a) 4 3))) (if (tile.wide? a) 4 3)
                    (<= (+ held way) (if (tile.makes-room? a) 168 88)) 1
                    true 0)
        most (cond (not (tile.wide? a)) (quot 512 threads) (= rows 128) 1 true (max 1 (quot 384 threads)))
        resident (min (quot (tile.room a) (tile.block-bytes a rows keys slots members)) most)]
    [rows members keys slots kept resident lined]))

(defn time-of [a [rows members keys slots kept resident lined]] (tile.shape-nanoseconds a rows keys members resident))

; Whether lanes have registers for it, where the compiler makes no room.  Keys in F32 take twice as many on their way:
; where they are rounded, rows that no others share leave room; where they are split, what is on its way goes beside
; sums, weights and queries, and some 112 of the 256 that lanes of subgroups of 32 have are taken by all else.  Where sums
; are half of these, queries lie in shared memory.
(defn bearable? [a [rows members keys slots kept resident lined]]
  (let [[queries parts] (tile.operand-parts a)
        lanes (* (quot rows 16) members (capability subgroup-size))
        each (quot keys members)
        sums (+ (words (tile.width a)) (words each))
        on-way (quot (* keys (+ (tile.depth a) (tile.width a))) lanes)]
    (cond (tile.makes-room? a) true
          (> (words (tile.width a)) 112) (and lined (= [rows keys] [64 16]))
          (not (or kept lined)) false
          (> parts 1) (and (<= sums 72) (<= (+ sums (if kept (tile.query-words a) 0) on-way 112)
                                            (* 8 (capability subgroup-size))))
          (and (> (words (tile.width a)) 32) (= (tile.key-bytes a) 4)) (and (= [rows members] [64 1]) (<= each 32))
          true true)))

(defn fits? [a [rows members each lined]]
  (let [tiling (tiling-of a [rows members each lined])]
    (and (tile.keys? (if lined (tile.shares-queries a) a) each) (<= (words (tile.width a)) 128) (> (nth tiling 5) 0)
         (bearable? a tiling))))

; The tiling that should take least time, of the shapes that fit.
(defn best-of [a of found]
  (if (= (count of) 0)
    found
    (let [t (if (fits? a (first of)) (tiling-of a (first of)) found)]
      (best-of a (rest of) (if (or (= found nil) (= t found) (< (time-of a t) (time-of a found))) t found)))))

(defn any-fits? [a of] (cond (= (count of) 0) false (fits? a (first of)) true true (any-fits? a (rest of))))

; Whether warpgroups can have it.
(defn wide? [a] (any-fits? (tile.by-warpgroups a true) wide-shapes))

(schedule attention [a]
  {:of attention
   :takes (and (tile.divides? a) (>= (tile.queries a) 64) (or (wide? a) (any-fits? a shapes)))}
  (let [wide (wide? a)
        a (if wide (tile.by-warpgroups a true) a)
        [rows members keys slots kept resident lined] (cond (not wide) (best-of a shapes nil)
                                                            (fits? a (fastest a)) (tiling-of a (fastest a))
                                                            true (best-of a wide-shapes nil))
        a (if wide (tile.by-warpgroups a (= rows 128)) a)    ; a few warpgroups fill the ring themselves
        [batch row] (tile.query-rows a rows)
        patches (tile.once (fn [] (tile.query-patches a batch row rows)))
        early (if (and lined (not (= rows 128))) (patches) nil)  ; on their way while nobody knows yet which keys are seen
        [from least last] (tile.visible a batch row rows)
        first-tile (quot from keys)
        limits (if (and wide (= rows 128)) (tile.resident a 1) nil)
        queries (fn [] (if lined (tile.query-lines a (patches)) (tile.query-registers a batch row rows)))
        own (if (or kept lined) (tile.once queries) queries)
        position (fn [n] (* keys (+ n first-tile)))]
    (tile.walk a slots (- (ceil-div (+ last 1) keys) first-tile)
      (fn [n] [(tile.keys a batch (position n) keys (+ last 1)) (tile.values a batch (position n) keys (+ last 1))])
      (fn [] (if (or kept lined) (own) nil) (softmax-none a (tile.weighed a [rows (tile.width a)] members) rows members))
      (fn [n state [k v]]
        (let [scores (tile.mask a (tile.scores a (own) k members) [batch row (position n)] least last)]
          (softmax-add state scores (tile.factor a) (fn [sums weights] (tile.weigh a sums weights v)))))
      (fn [state]
        (let [[sums log-sum] (softmax-result state)]
          (tile.store-rows a log-sum [batch row])
          (tile.store-rows a (tile.add-parts a sums) [batch row]))))))
