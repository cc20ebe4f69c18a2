; Beam search as one entry: of the texts that a recurrent model continues, the most probable `beams` go on at each step, and
; one that has ended keeps its place.  Its loop carries texts, chances and the model's states.
(require nn arrays kernels)
(config vocab 12  width 8  beams 3  steps 6  end 0)
(weights (table [vocab width]) (h-w [width width]) (head-w [vocab width]))

; rows of x [n*beams columns], those that places [n beams] name in each text
(defn chosen [x places]
  (let [[n _] (shape places)]
    (rows x (reshape (tensor [i n b beams] (+ (* (cast i i32) beams) (at places i b))) [(* n beams)]))))

; a step from what was written last, at place k
(defn step [[texts chances h] k]
  (let [[n _ places] (shape texts)
        k (at k 0)
        last (tensor [i n b beams] (at texts i b (cast k index)))
        h (tanh (+ (rows table (reshape last [(* n beams)])) (matmul-transposed h h-w)))
        logs (reshape (log-softmax (matmul-transposed h head-w)) [n beams vocab])
        logs (tensor [i n b beams v vocab]
               (+ (at chances i b)
                  (select (and (= (at last i b) end) (> k 0))
                          (select (= (cast v i32) end) 0.0 -1e9)
                          (at logs i b v))))
        [chances best] (top-k (reshape logs [n (* beams vocab)]) beams)
        from (tensor [i n b beams] (quot (at best i b) vocab))
        texts (tensor [i n b beams t places]
                (select (= (cast t i32) (+ k 1)) (mod (at best i b) vocab) (at texts i (cast (at from i b) index) t)))]
    [[texts chances (chosen h from)] nil]))

(entry search [(first-word [batch] i32)] {:shapes [{batch 3}]}
  (let [n (dim first-word 0)
        start [(tensor [i n b beams t (+ steps 1)] (at first-word i))
               (tensor [i n b beams] (select (= (cast b i32) 0) 0.0 -1e9))
               (full [(* n beams) width] 0.0 f32)]
        [[texts chances _] _] (scan step start (tensor [k steps one 1] (cast k i32)))]
    {:texts texts :chances chances}))
