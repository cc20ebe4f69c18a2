; Attention's gradients: sums weighed by what is made of scores, which are computed anew, so that none of them reaches
; memory.  Dao, "FlashAttention-2", 2023.  One text for the gradient of queries, whose rows go along keys, and for those
; of keys and values, whose rows go along queries; F32 operands are split into BF16 parts on the way.

; A shape is [rows step]: the rows of a block, and how many vectors a tile has of each that lies along the sums.
(def gradient-shapes [[64 32] [32 32] [16 32] [64 16] [32 16] [16 16]])
; Shapes where warpgroups multiply, of which each has 64 rows.
(def wide-gradient-shapes [[64 32] [64 16]])
; Shapes where lanes have few registers, which the compiler makes no room for.
(def small-gradient-shapes [[64 16] [32 16] [16 16]])

(defn lane-words [numbers] (ceil-div (* 16 numbers) (capability subgroup-size)))

; Of a lane, for sums and the rows' own vectors.
(defn held-words [g] (fold + (tile.own-words g) (map lane-words (tile.depths g))))

; Whether two tiles of scores of 32 vectors each, beside what is on its way, leave lanes no room: those of subgroups of
; 32 have 256 registers, and those of 64 have 512.
(defn crowded? [g]
  (and (not (tile.makes-room? g)) (>= (+ (held-words g) (lane-words 64)) (* 3 (capability subgroup-size)))))

; [rows step slots kept]: how many tiles shared memory holds, and whether the rows' own vectors stay in registers.
(defn gradient-tiling [g [rows step]]
  (let [kept (<= (held-words g) (if (tile.wide? g) 192 96))
        slots (if (tile.wide? g) 4 3)
        ring? (and (tile.copied? g) (<= (tile.vector-bytes g rows step slots) (tile.room g)))
        way (quot (* step (fold + 0 (tile.depths g))) (* 2 rows))
        most (if (tile.makes-room? g) 168 (min 168 (quot (* 15 (capability subgroup-size)) 4)))]
    [rows step (cond ring? slots (<= (+ (held-words g) way) most) 1 true 0) kept]))

(defn gradient-fits? [g [rows step]]
  (and (tile.vectors? g step) (<= (tile.vector-bytes g rows step 0) (tile.room g))
       (or (= rows 16) (> (tile.result-rows g) (quot rows 2)))
       (or (not (tile.wide? g)) (nth (gradient-tiling g [rows step]) 3))))

(defn first-fitting [g of]
  (cond (= (count of) 0) nil (gradient-fits? g (first of)) (first of) true (first-fitting g (rest of))))

(defn best-gradient [g]
  (first-fitting g (cond (tile.wide? g) wide-gradient-shapes (crowded? g) small-gradient-shapes true gradient-shapes)))
(defn widest [g] (if (= (best-gradient (tile.by-warpgroups g false)) nil) g (tile.by-warpgroups g false)))

(schedule attention-gradients [g]
  {:of attention-gradient
   :takes (and (tile.whole? g) (>= (tile.result-rows g) 32) (>= (tile.summed-over g) 32)
               (not (= (best-gradient (widest g)) nil)))}
  (let [g (widest g)
        [rows step slots kept] (gradient-tiling g (best-gradient g))
        [task row] (tile.query-rows g rows)
        [from end] (tile.reach g task row rows)
        first-tile (quot from step)
        each (- (ceil-div end step) first-tile)             ; tiles of a round
        vectors (fn [] (map (fn [n] (tile.own g n task row rows)) (range (count (tile.scored g)))))
        own (if kept (tile.once vectors) vectors)
        some (max each 1)
        last-round (- (tile.rounds g) 1)
        last-tile (- (ceil-div (tile.summed-over g) step) 1)
        ; What is brought ahead may be past the last: it is the last again, which nobody reads.
        round (fn [n] (if (= last-round 0) 0 (min (quot n some) last-round)))
        at (fn [n] (* step (min (+ first-tile (if (= last-round 0) n (- n (* some (round n))))) last-tile)))]
    (tile.walk g slots (* (tile.rounds g) each)
      (fn [n] (tile.beside g task (round n) (at n) step))
      (fn [] (if kept (own) nil) (tile.nothing g rows))
      (fn [n sums tiles]
        (let [scores (map (fn [x t] (tile.scores g x (nth tiles t) 1)) (own) (tile.scored g))
              weights (tile.weights g scores [task row] (round n) (at n))]
          (map (fn [s w t] (tile.weigh g s w (nth tiles t))) sums weights (tile.weighed-tiles g))))
      (fn [sums] (tile.store-parts g sums [task row])))))
