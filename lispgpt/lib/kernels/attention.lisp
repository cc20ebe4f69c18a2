; Attention of many rows of queries: a block goes along the keys that its rows see, tile by tile, and no score reaches
; memory.  Dao, "FlashAttention-2", 2023.  F32 operands are split into BF16 parts on the way.
(require "softmax.lisp")

; [rows members]: the rows of a block, of which each subgroup has sixteen, and how many subgroups share a row's keys.
(def shapes [[128 1] [64 1] [64 2] [32 2] [32 4] [16 4] [16 2] [16 1]])

; A tiling is [rows members keys slots kept]: the keys of a tile, how many tiles shared memory holds (0: none is on its
; way while another is multiplied), and whether queries stay in registers.
(defn words [a numbers] (ceil-div (* 16 numbers) (capability subgroup-size)))

(defn tiling-of [a [rows members]]
  (let [keys (* members (if (= (nth (tile.operand-parts a) 1) 1) 64 32))
        sums (+ (words a (tile.width a)) (words a (quot keys members)))
        way (* keys (+ (tile.depth a) (tile.width a)) (nth (tile.operand-parts a) 1))
        threads (* (quot rows 16) members (capability subgroup-size))
        own (+ sums (tile.query-words a))
        kept (<= own 168)]
    [rows members keys (cond (tile.pieces? a keys) 3
                             (<= (+ (if kept own sums) (ceil-div way (* 2 threads))) 168) 1
                             true 0) kept]))

(defn fits? [a [rows members keys slots kept]]
  (<= (tile.block-bytes a rows keys slots members) (tile.room a)))

; Whether every core gets a block.
(defn busy? [a [rows members keys slots kept]]
  (>= (* (tile.heads a) (ceil-div (tile.queries a) rows)) (capability cores)))

(defn first-of [good? of] (cond (= (count of) 0) nil (good? (first of)) (first of) true (first-of good? (rest of))))

; The most rows of which every core gets a block; else those of which most do, with most members.
(defn tiling [a]
  (let [fit (filter (fn [t] (fits? a t)) (map (fn [shape] (tiling-of a shape)) shapes))
        found (first-of (fn [t] (busy? a t)) fit)]
    (if (= found nil) (first-of (fn [t] (<= (first t) 32)) fit) found)))

(schedule attention [a]
  {:of attention
   :takes (and (tile.divides? a) (>= (tile.queries a) 64) (not (= (tiling a) nil)))}
  (let [[rows members keys slots kept] (tiling a)
        [batch row] (tile.query-rows a rows)
        [from least last] (tile.visible a batch row rows)
        first-tile (quot from keys)
        own (fn [] (tile.query-registers a batch row rows))
        held (if kept (own) nil)
        position (fn [n] (* keys (+ n first-tile)))]
    (tile.walk a slots (- (ceil-div (+ last 1) keys) first-tile)
      (fn [n] [(tile.keys a batch (position n) keys (+ last 1)) (tile.values a batch (position n) keys (+ last 1))])
      (fn [] (softmax-none a (tile.weighed a [rows (tile.width a)] members) rows members))
      (fn [n state [k v]]
        (let [scores (tile.mask a (tile.scores a (if kept held (own)) k members) [batch row (position n)] least last)]
          (softmax-add state scores (tile.factor a) (fn [sums weights] (tile.weigh a sums weights v)))))
      (fn [state]
        (let [[sums log-sum] (softmax-result state)]
          (tile.store-rows a log-sum [batch row])
          (tile.store-rows a (tile.add-parts a sums) [batch row]))))))
