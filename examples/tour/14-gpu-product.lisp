; A matrix product by tiles: blocks of 8 by 8 threads bring tiles to shared memory, and wait for each other.
;
;   lispgpt run examples/tour/14-gpu-product.lisp
;   lispgpt run examples/tour/14-gpu-product.lisp --target rocm:gfx1151
;
; prints: c[0, 0] = 67
; prints: c[31, 31] = -2
; prints: 1024 of 1024 equal the plain loops' values

(require-dialect arith func gpu memref scf)

(def tile 8)
(def size 32)
(def matrix memref<32x32xf32>)
(def tiles memref<8x8xf32, #gpu.address_space<workgroup>>)

; The block's last two arguments are its workgroup attributions: memory that the threads of a block share.
(defn product [(: a matrix) (: b matrix) (: c matrix)] -> []
  (def blocks (: (/ size tile) index))
  (def threads (: tile index))
  (gpu.launch {:workgroup_attributions 2} blocks blocks (: 1 index) threads threads (: 1 index)
    (region
      (block [(: bx index) (: by index) (: bz index) (: tx index) (: ty index) (: tz index)
              (: gx index) (: gy index) (: gz index) (: sx index) (: sy index) (: sz index)
              (: a-tile tiles) (: b-tile tiles)]
        (def row (arith.addi (arith.muli by sy) ty))
        (def column (arith.addi (arith.muli bx sx) tx))
        (def sum
          (scf.for {:result f32} (: 0 index) (: size index) (: tile index) (: 0.0 f32)
            (region
              (block [(: start index) (: partial f32)]
                (memref.store (memref.load a row (arith.addi start tx)) a-tile ty tx)
                (memref.store (memref.load b (arith.addi start ty) column) b-tile ty tx)
                (gpu.barrier)                         ; both tiles are there
                (def next
                  (fold (fn [sum k]
                          (arith.addf sum (arith.mulf (memref.load a-tile ty k) (memref.load b-tile k tx))))
                        partial (range tile)))
                (gpu.barrier)                         ; nobody reads them any more
                (scf.yield next)))))
        (memref.store sum c row column)
        (gpu.terminator)))))

; Small whole numbers, so that sums are exact.
(defn element [i j seed]
  (let [number (arith.remui (arith.addi (arith.muli i 5) (arith.muli j seed)) 7)]
    (arith.subf (arith.sitofp {:result f32} (arith.index_cast {:result i32} number)) 3.0)))

(defmacro each-element [[i j] & body]
  `(scf.for (: 0 index) (: size index) (: 1 index)
     (region
       (block [(: ~i index)]
         (scf.for (: 0 index) (: size index) (: 1 index)
           (region (block [(: ~j index)] ~@body)))))))

(defn plain [a b i j]
  (scf.for {:result f32} (: 0 index) (: size index) (: 1 index) (: 0.0 f32)
    (region
      (block [(: k index) (: sum f32)]
        (scf.yield (arith.addf sum (arith.mulf (memref.load a i k) (memref.load b k j))))))))

(defn new-matrix []
  (let [m (memref.alloc {:result matrix})]
    (gpu.host_register (memref.cast {:result memref<*xf32>} m))
    m))

(defn main []
  (def a (new-matrix))
  (def b (new-matrix))
  (def c (new-matrix))
  (each-element [i j]
    (memref.store (element i j 3) a i j)
    (memref.store (element i j 2) b i j))
  (product a b c)
  (println "c[0, 0] = %.0f" (memref.load c 0 0))
  (println "c[31, 31] = %.0f" (memref.load c 31 31))
  (def right (memref.alloca {:result memref<1xi64>}))
  (memref.store (: 0 i64) right 0)
  (each-element [i j]
    (def equal (arith.cmpf {:predicate "oeq"} (memref.load c i j) (plain a b i j)))
    (memref.store (arith.addi (memref.load right 0) (arith.extui {:result i64} equal)) right 0))
  (println "%ld of 1024 equal the plain loops' values" (memref.load right 0)))
