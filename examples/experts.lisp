; A mixture of experts: each row goes through the `top` of the experts that the router likes most, weighed by how much.
; "Outrageously Large Neural Networks", Shazeer et al. 2017; shares over the chosen ones as in "Mixtral of Experts", 2024.
; lispgpt run examples/experts.lisp --checkpoint W.safetensors --entry mixture --input x=x.npy --output y.npz
(require nn)

(config width 64  hidden 96  experts 8  top 2  layers 2)

(weights
  (per layers
    (norm-w [width] {:init 1})
    (router-w [experts width])
    (gate-w [experts hidden width] bf16)
    (up-w [experts hidden width] bf16)
    (down-w [experts width hidden] bf16)))

; [chosen scores] -> the next best expert of each row added to those chosen, and the scores without it
(defn choose [found i]
  (let [[chosen scores] found
        [n count] (shape scores)
        best (argmax scores)]
    [(concat chosen [best])
     (tensor [r n e count] (select (= (cast e i32) (at best r)) -inf (at scores r e)))]))

; x [rows in], w [experts out in] -> [rows out]: of w, a row reads only what its expert has
(defn by-expert [x w expert]
  (let [[n in] (shape x)
        own (tensor [r n o (dim w 1) i in] (at w (at expert r) o i))]
    (contract [r o] x [r i] own [r o i])))

(defn expert-layer [x l expert]
  (by-expert (* (silu (by-expert x (gate-w l) expert)) (by-expert x (up-w l) expert)) (down-w l) expert))

(defn mix [x l]
  (let [n (dim x 0)
        scores (linear x (router-w l))
        chosen (first (fold choose [[] scores] (range top)))
        taken (map (fn [expert] (tensor [r n] (at scores r (at expert r)))) chosen)
        shares (map (fn [score] (exp (- score (first taken)))) taken)       ; the first score is the largest
        total (fold + 0.0 shares)
        parts (map (fn [expert share]
                     (let [y (expert-layer x l expert)]
                       (tensor [r n c width] (* (at y r c) (/ (at share r) (at total r))))))
                   chosen shares)]
    (fold + (first parts) (rest parts))))

(defn layer [x l] (+ x (mix (rms-norm x (norm-w l) 1e-5) l)))

(entry mixture [(x [rows width] f32)] {:shapes [{rows 1} {rows 24}]}
  (fold layer x (range layers)))
