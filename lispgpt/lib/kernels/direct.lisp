; A product of few rows with weights in BF16, F32 or blocks, such as a decode step of several sequences: no thread waits for another.
; Each lane loads what it multiplies to its own registers, some steps ahead; subgroups share out k, and a block's rows of
; the other operand, which stand for columns here, come by way of the cache of its core.
;
; A tiling is [rows resident sharing blocks ahead]: the weights' rows of a block, how many blocks share a core, how many
; subgroups share out k, how many instructions' k a lane loads at once, and how many times ahead of their use.
(def tilings [[64 2 8 1 1] [64 1 16 1 1] [32 4 4 2 1] [32 2 8 2 1] [32 2 8 1 2] [32 1 16 2 1] [32 1 16 1 1]
              [16 2 16 2 1] [16 2 16 1 1] [16 2 8 2 2] [16 1 16 2 1] [16 1 8 2 1] [16 1 4 2 1] [32 1 8 2 1]
              [32 2 8 4 1] [16 2 8 4 1] [16 2 16 4 1] [32 1 8 4 1] [16 1 16 4 1]])
; [rows sharing] where all of a short k is on its way before any of it is multiplied.
(def whole [[16 4] [16 6] [16 8] [16 16] [32 8]])

; What there are few of stands for columns.
(defn skinny-of [kernel] (tile.packed (if (<= (tile.rows kernel) (tile.columns kernel)) (tile.transposed kernel) kernel)))

(defn up-to [n unit] (* unit (ceil-div n unit)))
(defn columns-of [p] (up-to (tile.columns p) (nth (tile.instruction p) 1)))
(defn share-of [p blocks] (* blocks (nth (tile.instruction p) 2)))

; Blocks that each core has one behind another.
(defn turns [p rows] (ceil-div (* (tile.batches p) (ceil-div (tile.rows p) rows)) (capability cores)))
(defn steps [p sharing blocks] (ceil-div (tile.inner p) (* sharing (share-of p blocks))))

(defn fits? [p [rows resident sharing blocks ahead]]
  (and (= (mod rows (first (tile.instruction p))) 0)
       (or (= resident 1) (> (turns p rows) 1))                 ; a block alone has its registers, too
       (<= (* sharing (capability subgroup-size)) 512)
       (<= (* (min (+ ahead 1) (steps p sharing blocks)) (tile.direct-words p [rows (columns-of p)] (share-of p blocks)))
           384)                                                  ; not all of which is there at once
       (tile.registers? p [rows (columns-of p)] [(share-of p blocks) sharing] ahead resident)
       (or (= (tile.parts p (tile.left p)) 1) (= (capability subgroup-size) 32)) ; what is split spills on CDNA
       (<= (* (tile.products p) 4 sharing rows (columns-of p)) (capability shared-bytes))
       (= (mod (* sharing (share-of p blocks)) (tile.block (tile.left p))) 0)
       (or (= (tile.block (tile.left p)) 1) (= (mod (tile.inner p) (* sharing (share-of p blocks))) 0))))

(defn time-of [p [rows resident sharing blocks ahead]]
  (tile.direct-nanoseconds p [rows (columns-of p)] [(share-of p blocks) sharing] ahead resident))

(defn short? [p [rows resident sharing blocks ahead]] (<= (* sharing (share-of p blocks)) (up-to (tile.inner p) 64)))
(defn whole-of [p [rows sharing]] [rows 1 sharing (ceil-div (tile.inner p) (* sharing (share-of p 1))) 1])
(defn whole? [p [rows resident sharing blocks ahead]]
  (and (= (tile.block (tile.left p)) 1) (not (tile.reduces? (tile.right p))) (<= (turns p rows) 3)))

; That which should take least time; nil where none fits.
(defn best [p]
  (tile.fastest p
    (fn []
      (filter (fn [t] (fits? p t))
              (concat (filter (fn [t] (short? p t)) tilings)
                      (filter (fn [t] (whole? p t)) (map (fn [t] (whole-of p t)) whole)))))
    (fn [t] (time-of p t))))

; Of a kernel of several products these have the rows on the right in common, whatever weights are on the left.
(schedule direct [& kernels]
  {:takes (let [all (map skinny-of kernels)
                p (first all)]
            (and (> (tile.columns p) 1) (<= (tile.columns p) 16) (>= (tile.rows p) 16)
                 (tile.alike? all) (tile.direct? (tile.left p)) (tile.brought? (tile.right p))
                 (= (tile.block (tile.right p)) 1)                ; weights in blocks are the left ones
                 (not (= (best p) nil))))}
  (let [all (map skinny-of kernels)
        p (first all)
        [rows resident sharing blocks ahead] (best p)
        step (* sharing (share-of p blocks))
        columns (columns-of p)
        [batch row column] (tile.task p [rows columns])]
    (tile.resident p resident)
    (tile.pipeline p ahead (steps p sharing blocks)
      (fn [n] (concat (map (fn [each] (tile.direct (tile.box (tile.left each) [batch row (* n step)] [rows step]) "a")) all)
                      [(tile.direct (tile.box (tile.right p) [batch column (* n step)] [columns step]) "b")]))
      (fn [] (map (fn [each] (tile.sums each [rows columns] sharing [1 1] "subgroup")) all))
      (fn [sums tiles] (map (fn [each a] (tile.mma p each a (first (reverse tiles)))) sums tiles))
      (fn [sums] (tile.store p (map (fn [each] (tile.add-parts p each)) sums) [batch row column])))))
