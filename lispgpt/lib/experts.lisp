; A mixture of experts: each row goes through the few of them that a router likes most, weighed by how much.
; "Outrageously Large Neural Networks", Shazeer et al. 2017; "Mixtral of Experts", Jiang et al. 2024.
(require nn)

; Whether layer l has experts: layers from 1 on that `step` divides have them, but for those among `dense`.
(defn has-experts [l step dense]
  (fold (fn [has other] (if (= l other) false has)) (= (mod (+ l 1) step) 0) dense))

; scores [rows experts] -> as many as `top` pairs of the next best expert of each row, i32 [rows], and its score, [rows]
(defn best-experts [scores top]
  (let [[n count] (shape scores)]
    (first
      (fold (fn [found i]
              (let [[chosen scores] found
                    best (argmax scores)]
                [(concat chosen [[best (tensor [r n] (at scores r (at best r)))]])
                 (tensor [r n e count] (select (= (cast e i32) (at best r)) -inf (at scores r e)))]))
            [[] scores]
            (range top)))))

; x [rows in], w [experts out in], expert [rows] -> [rows out]: of w, a row reads only what its expert has
(defn by-expert [x w expert]
  (let [[n in] (shape x)
        own (tensor [r n o (dim w 1) i in] (at w (at expert r) o i))]
    (contract [r o] x [r i] own [r o i])))

; x [rows width]; router [experts width], gate and up [experts hidden width], down [experts width hidden]: the sum of
; what the `top` best experts of each row make of it, each with its share of the softmax over all experts' scores, or,
; where `normed` is true, over those of the chosen ones
(defn mixture [x router gate up down top normed]
  (let [[n width] (shape x)
        scores (linear x router)
        chosen (best-experts scores top)
        best (nth (first chosen) 1)             ; the largest score
        weight (fn [score] (exp (- score best)))
        all (sum (tensor [r n e (dim router 0)] (exp (- (at scores r e) (at best r)))))
        total (if normed (fold (fn [t c] (+ t (weight (nth c 1)))) 0.0 chosen) all)
        parts (map (fn [c]
                     (let [[expert score] c
                           share (weight score)
                           y (by-expert (* (silu (by-expert x gate expert)) (by-expert x up expert)) down expert)]
                       (tensor [r n c width] (* (at y r c) (/ (at share r) (at total r))))))
                   chosen)]
    (fold + (first parts) (rest parts))))
