; Attention of many rows of queries: a block goes along the keys that its rows see, tile by tile, and no score reaches
; memory.  Dao, "FlashAttention-2", 2023.  F32 operands are split into BF16 parts on the way.
(require "softmax.lisp")

; A shape is [rows members each]: the rows of a block, of which each subgroup has sixteen, how many subgroups share a row's
; keys, and how many of a tile each has.  A tiling is [rows members keys slots kept resident]: the keys of a tile, how many
; tiles shared memory holds (0: none is on its way while another is multiplied), whether queries stay in registers, and how
; many blocks share a core.
(def shapes [[128 1 64] [64 1 64] [64 2 64] [64 2 32] [64 2 16] [64 1 32] [64 1 16] [32 2 64] [32 4 32] [32 2 32] [32 2 16]
             [32 1 32] [16 2 32] [16 2 16] [16 1 32]])

; Shapes where warpgroups multiply keys and values that lie in lines, as bulk copies bring them: each has 64 rows.
(def wide-shapes [[128 1 128] [128 1 64] [128 1 32] [64 1 128] [64 1 64] [64 1 32] [64 2 64] [64 2 32]])

(defn words [numbers] (ceil-div (* 16 numbers) (capability subgroup-size)))

(defn tiling-of [a [rows members each]]
  (let [parts (nth (tile.operand-parts a) 1)
        keys (* each members)
        threads (* (quot rows 16) members (capability subgroup-size))
        sums (+ (words (tile.width a)) (words each))
        kept (<= (+ sums (tile.query-words a)) 168)
        held (if kept (+ sums (tile.query-words a)) sums)
        way (ceil-div (* keys (+ (tile.depth a) (tile.width a)) parts) (* 2 threads))
        ring? (and (tile.pieces? a keys) (<= (tile.block-bytes a rows keys (if (tile.wide? a) 4 3) members) (tile.room a)))
        slots (cond (and ring? (tile.wide? a)) 4 ring? 3 (<= (+ held way) 168) 1 true 0)
        most (cond (not (tile.wide? a)) (quot 512 threads) (= rows 128) 1 true (max 1 (quot 384 threads)))
        resident (min (quot (tile.room a) (tile.block-bytes a rows keys slots members)) most)]
    [rows members keys slots kept resident]))

(defn time-of [a [rows members keys slots kept resident]] (tile.shape-nanoseconds a rows keys members resident))

(defn fits? [a [rows members each]]
  (and (tile.keys? a each) (<= (words (tile.width a)) 112) (> (nth (tiling-of a [rows members each]) 5) 0)))

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
        [rows members keys slots kept resident] (best-of a (if wide wide-shapes shapes) nil)
        a (if wide (tile.by-warpgroups a (= rows 128)) a)    ; a few warpgroups fill the ring themselves
        [batch row] (tile.query-rows a rows)
        [from least last] (tile.visible a batch row rows)
        first-tile (quot from keys)
        limits (if (and wide (= rows 128)) (tile.resident a 1) nil)
        queries (fn [] (tile.query-registers a batch row rows))
        own (if kept (tile.once queries) queries)
        position (fn [n] (* keys (+ n first-tile)))]
    (tile.walk a slots (- (ceil-div (+ last 1) keys) first-tile)
      (fn [n] [(tile.keys a batch (position n) keys (+ last 1)) (tile.values a batch (position n) keys (+ last 1))])
      (fn [] (if kept (own) nil) (softmax-none a (tile.weighed a [rows (tile.width a)] members) rows members))
      (fn [n state [k v]]
        (let [scores (tile.mask a (tile.scores a (own) k members) [batch row (position n)] least last)]
          (softmax-add state scores (tile.factor a) (fn [sums weights] (tile.weigh a sums weights v)))))
      (fn [state]
        (let [[sums log-sum] (softmax-result state)]
          (tile.store-rows a log-sum [batch row])
          (tile.store-rows a (tile.add-parts a sums) [batch row]))))))
