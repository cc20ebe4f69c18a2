; Functions: some exist in the machine code, others only while compiling.
;
;   lispgpt run examples/tour/02-functions.lisp
;
; prints: square of 12: 144
; prints: hypotenuse: 5.0
; prints: 40320

(require-dialect arith func math)

; With types it is a func.func; calling it by its name is a func.call.
(defn square [(: x i64)] -> i64
  (arith.muli x x))

; Without types it is inlined where it is called, and fits whatever it is given.
(defn hypotenuse [a b]
  (math.sqrt (arith.addf (arith.mulf a a) (arith.mulf b b))))

; Functions may call themselves and functions that come later.  `if` on a value that is known only when the program
; runs emits scf.if.
(defn factorial [(: n i64)] -> i64
  (if (<i n 2) 1 (arith.muli n (factorial (previous n)))))

(defn previous [(: n i64)] -> i64
  (func.return (arith.subi n 1)))

(defn main [] -> i64
  (println "square of 12: %ld" (square (: 12 i64)))
  (println "hypotenuse: %.1f" (hypotenuse (: 3.0 f64) (: 4.0 f64)))
  (factorial (: 8 i64)))
