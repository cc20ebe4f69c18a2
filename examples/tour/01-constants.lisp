; Constants and arithmetic.
;
;   lispgpt run examples/tour/01-constants.lisp
;
; prints: 42

; An op is written (dialect.op operands…), and its value is its first result.  Dialects are declared before their use.
(require-dialect arith)

; `(: 6 i64)` is a constant with its type.  A number among typed operands takes their type, as the 2 below does.
; The value of main's last form is what main returns, and what is printed when it has run.
(defn main [] -> i64
  (def six (: 6 i64))
  (def nine (arith.addi six 3))
  (arith.subi (arith.muli six nine) (arith.muli six 2)))
