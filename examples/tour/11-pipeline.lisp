; A program's own pipeline: which passes take its ops down to LLVM, and in which order.
;
;   lispgpt run examples/tour/11-pipeline.lisp
;   lispgpt run examples/tour/11-pipeline.lisp --print-ir-after convert-scf-to-cf
;
; prints: 285

(require-dialect arith scf)

; Without this form a pipeline is used that lowers every dialect.  It is in passes/pipelines/program.lisp.
(compilation
  (target cpu
    (pass canonicalize)
    (pass scf-for-loop-peeling)
    (pass convert-scf-to-cf)
    (pass convert-cf-to-llvm)
    (pass convert-func-to-llvm)
    (pass convert-arith-to-llvm)
    (pass reconcile-unrealized-casts)))

; 0² + 1² + … + 9²
(defn main [] -> i64
  (scf.for {:result i64} (: 0 index) (: 10 index) (: 1 index) (: 0 i64)
    (region
      (block [(: i index) (: sum i64)]
        (def n (arith.index_cast {:result i64} i))
        (scf.yield (arith.addi sum (arith.muli n n)))))))
