; A product of few rows, such as a decode step of several sequences: what counts is that the weights' bytes never wait.
; A block computes some of the weights' rows for all rows of the other operand, which stand for columns here; its
; subgroups share out k, and a ring keeps several steps of weights on their way while one is multiplied.  Weights in
; blocks come as they are, and become numbers on their way to registers.
;
; A tiling is [rows resident step slots sharing]: the weights' rows of a block, how many blocks share a core, the elements
; of k of one step, how many steps shared memory holds, and how many subgroups share out k.
(def heights [[32 2] [16 2] [64 2] [128 2] [32 1] [16 1] [64 1] [128 1]])
(def steps [[512 4 8] [512 3 8] [256 4 8] [256 3 8] [512 2 8] [256 2 8] [128 2 4]])

; What there are few of stands for columns.
(defn skinny-of [kernel] (tile.packed (if (<= (tile.rows kernel) (tile.columns kernel)) (tile.transposed kernel) kernel)))

(defn up-to [n unit] (* unit (ceil-div n unit)))
(defn columns-of [p] (up-to (tile.columns p) (nth (tile.instruction p) 1)))

(defn fits? [p [rows resident step slots sharing]]
  (let [columns (columns-of p)
        weights (* (tile.products p) rows)
        sums (* 4 sharing weights columns)
        other (if (= slots 2) (+ weights columns) columns)]
    (and (= (mod step (tile.block (tile.left p))) 0)
         (or (> slots 2) (= (tile.copies p step) "registers"))
         (= (tile.copies p step) (tile.copies p 512))             ; pieces of int8's blocks are whole in long steps alone
         (<= (* resident (+ (tile.bytes p rows columns step slots) sums 2048)) (tile.room p))
         (<= (* weights columns) 2048)                           ; sums, and what comes through registers, find room there
         (<= (* other step) 16384)
         (or (= (tile.block (tile.left p)) 1) (<= (* weights resident) 64)) ; nor are scales and numbers of blocks few
         (= (mod rows (first (tile.instruction p))) 0))))

(defn first-of [good? of]
  (cond (= (count of) 0) nil
        (good? (first of)) (first of)
        true (first-of good? (rest of))))

; The tiling with the longest steps that fit, for so many rows of a block.
(defn tiling [p [rows resident]]
  (first-of (fn [t] (fits? p t)) (map (fn [[step slots sharing]] [rows resident step slots sharing]) steps)))

(defn time-of [p [rows resident step slots sharing]] (tile.nanoseconds p [rows (columns-of p)] step resident))

; That which should take least time; nil where none fits.
(defn best [p]
  (tile.fastest p
    (fn [] (filter (fn [t] (not (= t nil))) (map (fn [height] (tiling p height)) heights)))
    (fn [t] (time-of p t))))

; Of a kernel of several products these have the rows on the right in common, whatever weights are on the left.
(schedule skinny [& kernels]
  {:takes (let [all (map skinny-of kernels)
                p (first all)]
            (and (tile.alike? all) (> (tile.columns p) 1) (<= (tile.columns p) (if (= (tile.block (tile.left p)) 1) 16 64)) (>= (tile.rows p) 16)
                 (tile.memory? (tile.left p)) (tile.brought? (tile.right p))
                 (= (tile.block (tile.right p)) 1)                ; weights in blocks are the left ones
                 (not (= (best p) nil))))}
  (let [all (map skinny-of kernels)
        p (first all)
        [rows resident step slots sharing] (best p)
        columns (columns-of p)
        [batch row column] (tile.task p [rows columns])]
    (tile.resident p resident)
    (tile.pipeline p slots (ceil-div (tile.inner p) step)
      (fn [n] (concat (map (fn [each] (tile.box (tile.left each) [batch row (* n step)] [rows step])) all)
                      [(tile.box (tile.right p) [batch column (* n step)] [columns step])]))
      (fn [] (map (fn [each] (tile.sums each [rows columns] sharing [1 1] "subgroup")) all))
      (fn [sums tiles] (map (fn [each a] (tile.mma p each a (first (reverse tiles)))) sums tiles))
      (fn [sums] (tile.store p (map (fn [each] (tile.add-parts p each)) sums) [batch row column])))))
