; Experts that take so many rows each and leave the rest alone ("Switch Transformers", Fedus et al. 2021), with the loss that
; spreads rows among them.
(require nn arrays algebra training)
(config inputs 6  width 12  experts 4  capacity 3  classes 5  spread 0.01)
(weights (router [experts inputs] {:init (normal 0.3)}) (up-w [experts width inputs] {:init (normal 0.3)})
  (down-w [experts inputs width] {:init (normal 0.3)}) (head-w [classes inputs] {:init (normal 0.3)}))

(entry fit [(x [batch inputs] f32) (labels [batch] i32)]
  (let [n (dim x 0)
        likely (softmax (matmul-transposed x router))
        [_ best] (top-k likely 1)
        chosen (one-hot (reshape best [n]) experts)
        place (sum (* chosen (- (cumsum chosen 0) 1.0)))       ; how many rows ahead of each want its expert
        taken (* chosen (tensor [i n e experts] (select (< (at place i) (* 1.0 capacity)) 1.0 0.0)))
        slots (tensor [i n e experts c capacity] (select (= (at place i) (cast (cast c i32) f32)) (at taken i e) 0.0))
        given (einsum [e c d] slots [i e c] x [i d])
        hidden (relu (einsum [e c h] given [e c d] up-w [e h d]))
        made (einsum [e c d] hidden [e c h] down-w [e d h])
        out (einsum [i d] slots [i e c] made [e c d])
        x (+ x (tensor [i n d inputs] (* (at out i d) (at likely i (at best i 0)))))
        spreads (* (* 1.0 experts) (sum (* (mean chosen 0) (mean likely 0))))
        [loss right] (cross-entropy (matmul-transposed x head-w) labels classes)]
    {:loss (+ loss (* spread spreads)) :right right :taken (sum (sum taken))}))
(training fit)
