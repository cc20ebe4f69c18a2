; Macros: functions from forms to forms, run while compiling.
;
;   lispgpt run examples/tour/06-macros.lisp
;
; prints: 3^10 = 59049
; prints: polynomial: 161
; prints: swapped: 2 1

(require-dialect arith memref scf)

; In a template, ~ fills in a value and ~@ a list of them.  `body` is every form that follows the header.
(defmacro dotimes [[i n] & body]
  `(scf.for (: 0 index) (: ~n index) (: 1 index)
     (region (block [(: ~i index)] ~@body))))

; A macro may compute: it is ordinary code.  This one multiplies as often as needed, and no more.
(defmacro power [x n]
  (cond
    (= n 0)         `(: 1 i64)
    (= n 1)         x
    (= (mod n 2) 1) `(arith.muli ~x (power ~x ~(- n 1)))
    :else           `(let [half (power ~x ~(/ n 2))] (arith.muli half half))))

; (horner x a b c) is a + x (b + x c)
(defmacro horner [x first & rest]
  (if (= (count rest) 0)
    `(: ~first i64)
    `(arith.addi (: ~first i64) (arith.muli ~x (horner ~x ~@rest)))))

; The `saved` of this template is no name of the caller's: macros are hygienic.
(defmacro swap! [m i j]
  `(let [saved (memref.load ~m ~i)]
     (memref.store (memref.load ~m ~j) ~m ~i)
     (memref.store saved ~m ~j)))

(defn main []
  (def three (: 3 i64))
  (println "3^10 = %ld" (power three 10))
  (println "polynomial: %ld" (horner (: 5 i64) 6 1 6))
  (def saved (memref.alloca {:result memref<2xi64>}))
  (dotimes [i 2]
    (memref.store (arith.index_cast {:result i64} (arith.addi i 1)) saved i))
  (swap! saved 0 1)
  (println "swapped: %ld %ld" (memref.load saved 0) (memref.load saved 1)))
