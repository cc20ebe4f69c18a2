; A product of few rows, such as a decode step of several sequences: what counts is that the weights' bytes never wait.
; Blocks have few columns, so that every core has one; their subgroups share out k, and a ring keeps several steps of
; weights on their way while one is multiplied.
;
; A tiling is [columns step slots]: the columns of a block, the elements of k of one step, and the ring's slots.
(def tilings [[32 512 4] [32 256 4] [16 512 4] [16 512 3] [16 256 4] [16 256 3]])
(def sharing 8)                            ; subgroups that share out k

(defn rows-of [p] (cond (<= (tile.rows p) 16) 16 (<= (tile.rows p) 32) 32 true 64))

(defn fits? [p [columns step slots]]
  (<= (+ (tile.bytes p (rows-of p) columns step slots) (* 4 sharing (rows-of p) columns)) (tile.room p)))

(defn busy? [p [columns step slots]]
  (>= (* (tile.batches p) (ceil-div (tile.columns p) columns)) (capability cores)))

(defn first-of [good? tilings]
  (cond (= (count tilings) 0) nil
        (good? (first tilings)) (first tilings)
        true (first-of good? (rest tilings))))

; The widest that gives every core a block, else the narrowest.
(defn tiling [p]
  (or (first-of (fn [t] (and (fits? p t) (busy? p t))) tilings)
      (first-of (fn [t] (and (= (first t) 16) (fits? p t))) tilings)))

(schedule skinny [p]
  {:takes (and (> (tile.rows p) 1) (<= (tile.rows p) 64) (>= (tile.columns p) 16) (= (tile.copies p 256) "async")
               (not (tile.reduces? (tile.left p))) (not (tile.reduces? (tile.right p))) (not (= (tiling p) nil)))}
  (let [[columns step slots] (tiling p)
        rows (rows-of p)
        [batch row column] (tile.task p [rows columns])]
    (tile.pipeline p slots (ceil-div (tile.inner p) step)
      (fn [n] [(tile.box (tile.right p) [batch column (* n step)] [columns step])
               (tile.box (tile.left p) [batch row (* n step)] [rows step])])
      (fn [] (tile.sums p [rows columns] sharing [1 1] "subgroup"))
      (fn [sums [b a]] (tile.mma p sums a b))
      (fn [sums] (tile.store p (tile.add-parts p sums) [batch row column])))))
