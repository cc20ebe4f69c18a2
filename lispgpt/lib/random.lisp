; Random numbers from a counter and a key: the same for the same two, on every target and in any order.
(require-dialect arith)

; "Parallel random numbers: as easy as 1, 2, 3", Salmon et al. 2011: Philox4x32-10
(defn philox [counter key]
  (first (fold philox-round [counter key] (range 10))))

; The word of an element (row, column) of a tensor [rows width] among those that calls give one after the other, each of
; which begins its counter with its own number: four neighbours have those of one call, which is made once where they
; are computed together
(defn philox-word [row column width counter key]
  (let [whole (= (mod width 4) 0)
        number (+ (* row width) column)
        quarter (fn [n] (arith.shrui n (: 2 i32)))
        call (if whole (+ (* row (quot width 4)) (quarter column)) (quarter number))
        [a b c d] (philox (concat [call] counter) key)
        which (arith.andi (if whole column number) (: 3 i32))]
    (select (< which 2) (select (= which 0) a b) (select (= which 2) c d))))

(defn philox-round [state number]
  (let [[[a b c d] [k l]] state
        [low-a high-a] (arith.mului_extended a (: 0xD2511F53 i32))
        [low-c high-c] (arith.mului_extended c (: 0xCD9E8D57 i32))]
    [[(arith.xori (arith.xori high-c b) k) low-c (arith.xori (arith.xori high-a d) l) low-a]
     [(+ k (: 0x9E3779B9 i32)) (+ l (: 0xBB67AE85 i32))]]))

; A word of 32 bits as a real from 0 to below 1, of its upper 24 bits.
(defn fraction [word]
  (* (arith.uitofp {:result f32} (arith.shrui word (: 8 i32))) 5.9604644775390625e-08))
