; A running softmax of rows: the largest score so far, in powers of two; the sum of weights below it, in the shares of
; lanes; and the sums that weights make of something else.  Milakov and Gimelshein, "Online normalizer calculation for
; softmax", 2018.
(def lowest -1e30)                                      ; finite, so that the difference of two is never NaN
(def log2-e 1.4426950408889634)
(def times (fn [a b] (tile.map "*" [a b])))

; Of no scores.  sums: zeros, of `rows` rows and as many members as scores' columns have.
(defn softmax-none [a sums rows members]
  [(tile.row-numbers a lowest [rows members]) (tile.row-shares a 0.0 [rows members]) sums])

; With more scores, over a factor.  weigh: (fn [sums weights]), which adds what these weigh.
(defn softmax-add [[top total sums] scores factor weigh]
  (let [unit (* log2-e factor)
        reached (tile.map "max" [top (times (tile.reduce "max" scores) unit)])
        fall (tile.map "exp2" [(tile.map "-" [top reached])])
        weights (tile.map "exp2" [(tile.map "fma" [scores unit (tile.map "neg" [reached])])])]
    [reached
     (tile.map "fma" [total fall (tile.reduce-lanes "+" weights)])
     (weigh (times sums fall) weights)]))

; [sums log-sum-exp]: each member's sums over what all of its row's members have together, and that as a logarithm.
(defn softmax-result [[top total sums]]
  (let [highest (tile.over-members "max" top)
        fall (tile.map "exp2" [(tile.map "-" [top highest])])
        whole (tile.over-members "+" (times (tile.reduce "+" total) fall))]
    [(times sums (tile.map "/" [fall whole]))
     (tile.map "+" [(times highest (/ 1 log2-e)) (tile.map "log" [whole])])]))
