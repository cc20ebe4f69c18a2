; A product of many rows and columns.  A block computes a tile of rows by columns, and goes along k step by step: both
; operands come to shared memory ahead of their use, where the chip's matrix instructions take them from.  F32 operands
; are split into BF16 parts on the way.
;
; A tiling is [rows columns step slots parts teams unit]: a block's tile, the elements of k of one step, how many steps
; shared memory holds, how many members share out k, and how the members lie along rows and columns.
(def copied [[128 128 32 4 1 [2 4] "subgroup"] [64 128 32 4 1 [1 8] "subgroup"] [64 64 32 4 1 [2 4] "subgroup"]])
(def loaded [[128 128 32 2 1 [2 4] "subgroup"] [64 128 32 2 1 [1 8] "subgroup"] [64 64 32 2 1 [2 4] "subgroup"]])
; Few rows: subgroups that share out k.
(def narrow [[16 32 256 1 8 [1 1] "subgroup"] [16 32 128 1 4 [1 1] "subgroup"] [16 32 64 1 2 [1 2] "subgroup"]])

; One step, or two in turns, lie in memory that every chip has; rings, and sums of several parts, in all that there is.
(defn fits? [p [rows columns step slots parts teams unit]]
  (<= (+ (tile.bytes p rows columns step slots) (if (> parts 1) (* 4 parts rows columns) 0))
      (cond (> slots 2) (tile.room p) (= slots 2) 49152 true (capability shared-bytes))))

; Whether every core gets a block.
(defn busy? [p [rows columns step slots parts teams unit]]
  (and (<= rows (tile.rows p))
       (>= (* (tile.batches p) (ceil-div (tile.rows p) rows) (ceil-div (tile.columns p) columns)) (capability cores))))

; What a thread loads one by one, each with its address, has to find room in its registers.
(defn bearable? [p [rows columns step slots parts teams unit]]
  (let [threads (* parts (first teams) (nth teams 1) (capability subgroup-size))
        held (fn [operand extent] (* (tile.parts p operand) (tile.single-loads operand extent step threads)))]
    (<= (+ (held (tile.left p) rows) (held (tile.right p) columns)) 60)))

(defn first-of [good? tilings otherwise]
  (cond (= (count tilings) 0) otherwise
        (good? (first tilings)) (first tilings)
        true (first-of good? (rest tilings) otherwise)))

(defn with-slots [[rows columns step slots parts teams unit] slots]
  [rows columns step slots parts teams unit])

; The largest tile of which every core gets a block.
(defn subgroup-tiling [p tilings]
  (let [as-fits (fn [t] (if (fits? p t) t (with-slots t 1)))
        few (first-of (fn [t] (and (fits? p t) (bearable? p t))) narrow (nth narrow 2))]
    (first-of (fn [t] (and (fits? p t) (busy? p t))) (map as-fits tilings) few)))

(defn tiling [p] (subgroup-tiling p (if (= (tile.copies p 32) "async") copied loaded)))

; What a thread holds of two split operands leaves no registers for a second block of the largest tile.
(defn resident [p rows]
  (if (and (= rows 128) (> (tile.parts p (tile.left p)) 1) (> (tile.parts p (tile.right p)) 1)) 0 2))

; A cluster is [together splits]: blocks that bring columns for each other, and blocks that share out k.
(defn product-of-tiles [p [rows columns step slots parts teams unit] cluster]
  (tile.tasks p [rows columns] cluster unit
    (fn [[batch row column]]
      (tile.pipeline p slots (ceil-div (tile.inner p) step)
        (fn [n] [(tile.box (tile.right p) [batch column (* n step)] [columns step])
                 (tile.box (tile.left p) [batch row (* n step)] [rows step])])
        (fn [] (tile.sums p [rows columns] parts teams unit))
        (fn [sums [b a]] (tile.mma p sums a b))
        (fn [sums] (tile.store p (tile.add-parts p sums) [batch row column]))))))

(schedule matmul [p]
  {:takes (and (>= (tile.rows p) 8) (>= (tile.columns p) 8)
               (not (tile.reduces? (tile.left p))) (not (tile.reduces? (tile.right p))))}
  (let [t (tiling p)
        blocks (resident p (first t))]
    (if (> blocks 0) (tile.resident p blocks) nil)
    (product-of-tiles p t [1 1])))

; A product of many rows and columns by warpgroups, which read what bulk copies bring, and split F32 numbers where they
; are on the left.
(schedule warpgroups [kernel]
  {:takes (let [p (tile.short-right kernel)]
            (and (>= (tile.rows p) 16) (>= (tile.columns p) 8) (= (tile.copies p 64) "bulk")))}
  (let [p (tile.short-right kernel)
        [rows columns slots teams together splits] (tile.warpgroup-tiling p)]
    (tile.resident p 1)
    (product-of-tiles p [rows columns 64 slots 1 teams "warpgroup"] [together splits])))
