; A reduction by subgroup shuffles: 32 threads add up a row without touching memory in between.
;
;   lispgpt run examples/tour/13-gpu-reduction.lisp
;   lispgpt run examples/tour/13-gpu-reduction.lisp --target rocm:gfx1151
;
; prints: row 0: 496
; prints: row 1: 1520
; prints: row 2: 2544
; prints: row 3: 3568

(require-dialect arith gpu memref scf)

; In round k every lane adds the sum of the lane whose number differs in bit k, so that after five rounds all 32 lanes
; have the sum of all.
(defn sum-over-subgroup [value]
  (fold (fn [sum offset]
          (let [[other valid] (gpu.shuffle {:mode "#gpu<shuffle_mode xor>"} sum (: offset i32) (: 32 i32))]
            (arith.addi sum other)))
        value [16 8 4 2 1]))

; One block of one subgroup for each row.
(defn sum-rows [(: rows memref<4x32xi32>) (: sums memref<4xi32>)] -> []
  (gpu.launch (: 4 index) (: 1 index) (: 1 index) (: 32 index) (: 1 index) (: 1 index)
    (region
      (block [(: row index) (: by index) (: bz index) (: lane index) (: ty index) (: tz index)
              (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)]
        (def sum (sum-over-subgroup (memref.load rows row lane)))
        (when (=i lane (: 0 index))
          (memref.store sum sums row))
        (gpu.terminator)))))

(defn main []
  (def rows (memref.alloc {:result memref<4x32xi32>}))
  (def sums (memref.alloc {:result memref<4xi32>}))
  (gpu.host_register (memref.cast {:result memref<*xi32>} rows))
  (gpu.host_register (memref.cast {:result memref<*xi32>} sums))
  (scf.for (: 0 index) (: 4 index) (: 1 index)
    (region
      (block [(: row index)]
        (scf.for (: 0 index) (: 32 index) (: 1 index)
          (region
            (block [(: column index)]
              (def number (arith.addi (arith.muli row 32) column))
              (memref.store (arith.index_cast {:result i32} number) rows row column)))))))
  (sum-rows rows sums)
  (for [row (range 4)]
    (println "row %d: %d" row (memref.load sums row))))
