; A mixture of experts: each row goes through the few of them that a router likes most, weighed by how much.
; "Outrageously Large Neural Networks", Shazeer et al. 2017; "Mixtral of Experts", Jiang et al. 2024.
(require nn)

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

; x [rows in], w [experts in out] as some models store it, b [experts out] -> [rows out]
(defn from-expert [x w b expert]
  (let [[n in] (shape x)
        own (tensor [r n o (dim w 2) i in] (at w (at expert r) i o))
        y (contract [r o] x [r i] own [r o i])]
    (tensor [r n o (dim w 2)] (+ (at y r o) (at b (at expert r) o)))))

; scores [rows experts] -> the sum of what the `top` best experts of each row make of it, (make expert) [rows width] for
; an expert of each row, times its share of the softmax over all experts' scores, or, where `normed` is true, over those
; of the chosen ones
(defn mixture-of [scores top normed make]
  (let [chosen (best-experts scores top)
        [n count] (shape scores)
        best (nth (first chosen) 1)             ; the largest score
        weight (fn [score] (exp (- score best)))
        all (sum (tensor [r n e count] (exp (- (at scores r e) (at best r)))))
        total (if normed (fold (fn [t c] (+ t (weight (nth c 1)))) 0.0 chosen) all)
        parts (map (fn [c]
                     (let [[expert score] c
                           share (weight score)
                           y (make expert)]
                       (tensor [r n c (dim y 1)] (* (at y r c) (/ (at share r) (at total r))))))
                   chosen)]
    (fold + (first parts) (rest parts))))

; x [rows width]; router [experts width], gate and up [experts hidden width], down [experts width hidden]: the mixture of
; experts that are feed-forward layers with a gate
(defn mixture [x router gate up down top normed]
  (mixture-of (linear x router) top normed
    (fn [expert] (by-expert (* (silu (by-expert x gate expert)) (by-expert x up expert)) down expert))))
