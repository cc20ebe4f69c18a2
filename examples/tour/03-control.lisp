; Choosing and repeating.
;
;   lispgpt run examples/tour/03-control.lisp
;
; prints: 1 2 fizz 4 buzz fizz 7 8 fizz buzz
; prints: 1 + 2 + … + 100 = 5050
; prints: 27 reaches 1 in 111 steps

(require-dialect arith scf)

(defn divides? [n by]
  (=i (arith.remsi n by) 0))

; `cond` and `if` with values become nested scf.if ops; `when` has no value.
(defn print-fizz [n]
  (cond
    (divides? n (: 3 i64)) (print "fizz")
    (divides? n (: 5 i64)) (print "buzz")
    :else                  (print "%ld" n)))

; scf.for carries values from one round to the next: `total` starts as 0, and each round yields its next value.
(defn sum-to [(: n i64)] -> i64
  (def last (arith.index_cast {:result index} n))
  (scf.for {:result i64} (: 0 index) last (: 1 index) (: 0 i64)
    (region
      (block [(: i index) (: total i64)]
        (def next (arith.addi (arith.index_cast {:result i64} i) 1))
        (scf.yield (arith.addi total next))))))

; `loop` is an scf.while: names with their first values, a condition, and the values of the next round.
(defn collatz-steps [(: start i64)] -> i64
  (def [n steps]
    (loop {:result [i64 i64]} [n start steps (: 0 i64)]
      :while (!=i n 1)
      :do [(if (divides? n (: 2 i64))
             (arith.divsi n 2)
             (arith.addi (arith.muli n 3) 1))
           (arith.addi steps 1)]))
  steps)

(defn main []
  (for [n (range 1 11)]                   ; `for` repeats its body while compiling
    (print-fizz (: n i64))
    (when (< n 10) (print " ")))
  (println "")
  (println "1 + 2 + … + 100 = %ld" (sum-to (: 100 i64)))
  (println "27 reaches 1 in %ld steps" (collatz-steps (: 27 i64))))
