; What every program has without asking: tensors' small change, and control sugar.
(require-dialect arith scf)

(defn identity [x] x)

(defn square [x] (* x x))

; Over the last dimension.
(defn sum [x] (reduce + 0.0 x))
(defn maximum [x] (reduce max -inf x))

; [rows columns] -> the column of each row's largest element, the first of equals, as i32.
(defn argmax [x]
  (let [[rows columns] (shape x)
        best (maximum x)
        none 2147483647]
    (reduce min none (tensor [r rows c columns]
                       (select (= (at x r c) (at best r)) (cast c i32) none)))))
